"""A region of a program as a Python function, and the arrays that it is given."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.measure.tolerance import FLOAT64
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.layouts import layout_changes
from parity.verifier.search.region import Region
from vit_config import InputError

_NAMES = [*"xyzuvwpqrst"]


@dataclass
class Arrays:
    """The arrays that both functions are given: as few as hold all their inputs."""

    held: dict[str, np.ndarray] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    """What each array is in the programs."""

    def give(self, program: Program, op: Operation, value: np.ndarray) -> str:
        """Return a numpy expression of a value that a region reads."""
        for name, array in self.held.items():
            for change in layout_changes(array.shape, value.shape):
                if distance(change.of(array), value) <= FLOAT64 and array.dtype.kind == value.dtype.kind:
                    self.about[name] += f"; {_about(program, op)}"
                    return change.code(name, array.shape)
        name = self._free(op)
        self.held[name] = np.ascontiguousarray(value)
        self.about[name] = _about(program, op)
        return name

    def _free(self, op: Operation) -> str:
        if op.kind in ("parameter", "input") and op.label:
            name = re.sub(r"\W+", "_", "_".join(op.label.split(".")[-2:])).strip("_").lower()
            name = name if name.isidentifier() and name not in _TAKEN else f"x_{name}".rstrip("_")
        else:
            name = next((each for each in _NAMES if each not in self.held), "x")
        number = 2
        while name in self.held:
            name, number = f"{name.rstrip('0123456789')}{number}", number + 1
        return name


_TAKEN = frozenset(["a", "b", "np", "torch", "jax", "jnp", "lax", "aten", "lambda", "of_a", "of_b"])


def _about(program: Program, op: Operation) -> str:
    what = op.label if op.run is None else op.name
    where = f" {op.source}" if op.source else ""
    return f"{program.name}'s {what or op.kind}{where}"


@dataclass(frozen=True)
class CodeSide:
    """One side of a place as code."""

    framework: str
    """torch, jax, or numpy where nothing is computed."""
    lines: tuple[str, ...]
    """The body of the function."""
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]
    """Numpy expressions of what the function is called with."""


def side_of(region: Region, arrays: Arrays, *, given: np.ndarray | None = None) -> CodeSide:
    """Write a region as a function.

    Args:
        region: operations, and the value at their end.
        arrays: what functions are given; extended by what the region reads.
        given: the value at the end, where the region has no operations.

    Raises:
        InputError: it reads what no array holds, such as the key of a random generator.
    """
    program, end = region.program, region.end
    operations, outside = _closed(program, set(region.operations), end)
    operations = [each for each in operations if each <= end]
    names: dict[int, str] = {}
    arguments = []
    for index, value in outside.items():
        value = given if given is not None and index == end else value
        arguments.append(arrays.give(program, program.operations[index], np.asarray(value)))
        names[index] = _parameter(arguments[-1], names.values())
    parameters = tuple(names.values())
    framework = _framework(program, operations)
    lines: list[str] = []
    last = ""
    for number, index in enumerate(operations):
        op = program.operations[index]
        operands = [names[e.index] if isinstance(e, Ref) else _literal(e) for e in op.operands]
        *before, expression = _code(framework, op, operands)
        lines += before
        names[index] = f"v{number}"
        source = f"  # {op.source}" if op.source and str(op.source) != last else ""
        last = str(op.source or last)
        lines.append((f"v{number} = " if index != end else "return ") + expression + source)
    if end not in operations:
        lines.append(f"return {names[end]}")
    return CodeSide(framework, tuple(lines), parameters, tuple(arguments))


def _closed(program: Program, inside: set[int], end: int) -> tuple[list[int], dict[int, Any]]:
    """Return a region's operations, with those before it whose results are no arrays, and the values
    that they read."""
    while True:
        read = {i for index in inside for i in program.operations[index].inputs} - inside
        wanted = sorted(read | ({end} - inside))
        values = program.values(wanted)
        more = {i for i in wanted if not isinstance(values[i], np.ndarray | np.generic)}
        if not more:
            return sorted(inside), values
        for index in more:
            if program.operations[index].run is None:
                raise InputError(
                    f"{program.name}: {program.operations[index].label or 'a constant'} is no array of"
                    " numbers; no program can be written"
                )
        inside = inside | more


def _framework(program: Program, operations: list[int]) -> str:
    if not operations:
        return "numpy"
    runs = (program.operations[each].run for each in operations)
    return "torch" if any(".aten." in type(run).__module__ for run in runs) else "jax"


def _code(framework: str, op: Operation, operands: list[str]) -> list[str]:
    if framework == "torch":
        from parity.verifier.repro.torch_code import torch_code

        return torch_code(op.run, operands)
    from parity.verifier.repro.jax_code import jax_code

    return jax_code(op, operands)


def _parameter(expression: str, taken: Any) -> str:
    name = re.split(r"\W", expression.removeprefix("np.broadcast_to("))[0]
    while name in taken:
        name += "_"
    return name


def _literal(value: Any) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        plain = array.item()
        finite = not isinstance(plain, float) or np.isfinite(plain)
        return repr(plain) if finite else f'float("{plain}")'
    return f"np.array({array.tolist()})"
