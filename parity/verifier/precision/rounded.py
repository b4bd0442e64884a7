"""Simulated runs of a program in a smaller type: each result is rounded to the type that holds it.

Operations compute in float64 from the numbers they read, and the result is rounded once: products
accumulate in full, as the matrix units of GPUs and TPUs do in float32, and a library's fused kernel
(a softmax, a norm of torch's) rounds at its end only. TensorFloat-32 rounds the factors of a product, to
ten bits, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ml_dtypes
import numpy as np

from parity.verifier.choices import Low
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.jaxprs.values import rounding_of
from parity.verifier.programs.names import LAYOUT
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program

PRODUCTS = frozenset(["matmul", "conv", "addmm", "baddbmm", "linear"])
_EXACT = LAYOUT | {
    "slice", "concat", "gather", "stack", "pad", "neg", "abs", "max", "min", "maximum", "minimum",
    "where", "relu", "sign", "clip", "view", "write", "shard", "unshard", "split", "unbind", "unfold",
    "masked_fill", "dynamic_update_slice", "argmax", "argmin",
}  # fmt: skip
"""Operations that need no rounding: they only move, choose or negate numbers."""


class RoundedProgram:
    """A program recorded in a smaller type, which can be run again with some results in float32."""

    def __init__(self, program: Program, dtype: Low) -> None:
        self.program, self.dtype = program, dtype
        self.low = 0.0 if dtype == "tf32" else rounding_of(np.dtype(getattr(ml_dtypes, dtype, dtype)))
        self.needed = self._needed()
        self.exact = self._run(None)
        self.runs = 0
        """Number of runs so far."""

    @property
    def candidates(self) -> list[int]:
        """Operations that lose digits to the smaller type, in order."""
        return [i for i in self.needed if self._loses(self.program.operations[i])]

    def error(self, high: Collection[int]) -> float:
        """Run the program and return the largest relative distance of an output from float64.

        Args:
            high: the operations whose results stay in float32; for TF32, products computed in full.
        """
        self.runs += 1
        outputs = self._run(frozenset(high))
        errors = [distance(exact, each) for exact, each in zip(self.exact, outputs, strict=True)]
        return max((each if np.isfinite(each) else np.inf for each in errors), default=0.0)

    def ran_error(self) -> float:
        """Return the same error of the framework's own run in the smaller type."""
        errors = [distance(exact, np.reshape(each, np.shape(exact)))
                 for exact, each in zip(self.exact, self.program.ran, strict=True)]  # fmt: skip
        return max(errors, default=0.0)

    def _needed(self) -> list[int]:
        return sorted(self.program.upstream(index for _, index in self.program.outputs))

    def _loses(self, op: Operation) -> bool:
        if self.dtype == "tf32":
            return op.name in PRODUCTS
        if op.epsilon != self.low or op.mark is None:
            return False
        if op.name == "convert" and op.inputs:
            return self.program.operations[op.inputs[0]].epsilon < self.low
        return op.name not in _EXACT

    def _run(self, high: frozenset[int] | None) -> list[np.ndarray]:
        """Return the outputs of a run with the results `high` in float32; None: nothing is rounded."""
        program = self.program
        last = {i: index for index in self.needed for i in program.operations[index].inputs}
        final = {index for _, index in program.outputs}
        known: dict[int, Any] = {}
        for index in self.needed:
            op = program.operations[index]
            for i in op.inputs:
                if i not in known:
                    known[i] = _wide(program.cache[i])
            operands = known
            if high is not None and self.dtype == "tf32" and op.name in PRODUCTS and index not in high:
                operands = {**known, **{i: _tf32(known[i]) for i in _factors(op)}}
            with np.errstate(all="ignore"):
                value = program.apply(op, operands, {})
            known[index] = value if high is None else self._rounded(op, value, high)
            for i in op.inputs:
                if last[i] == index and i not in final:
                    known.pop(i, None)
        return [_wide(known[i] if i in known else program.cache[i]) for _, i in program.outputs]

    def _rounded(self, op: Operation, value: Any, high: frozenset[int]) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        with np.errstate(over="ignore"):
            if self._loses(op) and self.dtype != "tf32" and op.index not in high:
                return value.astype(getattr(ml_dtypes, self.dtype, self.dtype)).astype(np.float64)
            return value.astype(np.float32).astype(np.float64)


def _wide(value: Any) -> Any:
    floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float64, copy=False) if floating else value


def _factors(op: Operation) -> list[int]:
    """Return the factors of a product, without the term that is added to it."""
    return op.inputs[-2:] if op.name in ("addmm", "baddbmm") else op.inputs[:2]


def _tf32(value: Any) -> Any:
    """Round numbers to ten bits behind the leading one, with the exponents of float32."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x0FFF + ((bits >> 13) & 1)
    high = (bits & 0xFFFFE000).astype(np.uint32).view(np.float32).reshape(value.shape)
    return np.where(np.isfinite(value), high, value).astype(np.float64)
