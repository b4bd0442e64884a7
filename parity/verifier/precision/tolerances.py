"""Tolerances between two correct implementations of a function, derived from the function itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from parity.measure.nudge import nudge_numbers
from parity.measure.tolerance import FACTOR, FEW, RATIO, epsilon
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from vit_config import ConfigError, InputError

DType = Literal["float64", "float32", "bfloat16", "float16"]
NUDGES = 4
"""Number of times that parameters and inputs are nudged; the largest effect counts."""


@dataclass(frozen=True)
class Tolerance:
    """Limits on the difference of two correct implementations; see `tolerance_for`."""

    dtype: DType
    relative: float
    """Limit of ||a - b|| / ||b||, in the Euclidean norm of the whole output."""
    absolute: float
    """Limit of max |a - b| over single numbers."""
    origin: str
    """How the limits were derived, with the measurement behind them."""

    @property
    def allclose(self) -> dict[str, Any]:
        """Arguments for ``np.testing.assert_allclose(a, b, **tolerance.allclose)`` and the like."""
        return {"rtol": 0.0, "atol": self.absolute}

    def assert_close(self, actual: Any, desired: Any) -> None:
        """Assert that two outputs differ by no more than the limits, in the norm and in every number.

        Raises:
            AssertionError: they differ by more (the message has error and limit), or in shape.
        """
        a, b = _plain(actual), _plain(desired)
        if a.shape != b.shape:
            raise AssertionError(f"shapes differ: {list(a.shape)} and {list(b.shape)}")
        relative = distance(b, a)
        absolute = float(np.abs(np.nan_to_num(a - b, nan=np.inf)).max(initial=0.0))
        for name, error, limit in (
            ("relative error", relative, self.relative),
            ("largest difference", absolute, self.absolute),
        ):
            if not error <= limit:
                raise AssertionError(f"{name} {error:.2g}, where {limit:.2g} is allowed: {self.origin}")


def tolerance_for(
    function: Callable[..., Any], *args: Any, dtype: DType = "float32", output: str | None = None
) -> Tolerance:
    """Derive how far two correct implementations of a function may differ, on these inputs.

    In float32 and smaller types the function is run in the type and, on the same rounded parameters and
    inputs, in float64: `own` is the distance. An implementation counts as correct up to 4 times that
    distance (4 epsilons at least; more where the output has fewer than 64 numbers, in which one may be
    right by luck), so this implementation and another may be ``own + 4 max(own, epsilon)`` apart. In
    float64 there is no wider type: parameters and inputs are nudged by one unit in the last place, and
    32 times the resulting change (32 epsilons at least) is allowed. The factors are those of
    `parity.measure.tolerance`, which has the measurements behind them. A wrong function - another GELU,
    epsilon or scale - exceeds the tolerance wherever it differs by more than the type's rounding.

    Args:
        function: a torch.nn.Module, an nnx.Module, a callable pytree or a function of either framework;
            for Linen ``functools.partial(module.apply, variables)``. Arrays that are bound by `partial`
            are its parameters. Modules run in evaluation mode.
        args: the inputs of the function.
        dtype: the type in which the two implementations will be compared.
        output: path of the output to use, if the function has several.

    Raises:
        ConfigError: the type is unknown.
        InputError: the function cannot be run, has several outputs of which none was chosen, or returns
            an output that is not finite.
    """
    if dtype not in get_args(DType):
        raise ConfigError(f"dtype = {dtype!r}: must be one of {', '.join(get_args(DType))}")
    side = function, args
    if dtype == "float64":
        return _by_nudges(record(side, "the function"), output)
    program = record(side, "the function", dtype=dtype)
    chosen = _chosen(program, output)
    exact = _finite(program, chosen, _again(program, chosen))
    ran = np.reshape(program.ran[chosen], exact.shape)
    grain = epsilon(dtype) * max(1.0, math.sqrt(FEW / max(exact.size, 1)))
    own = distance(exact, ran)
    if not math.isfinite(own):
        name = program.outputs[chosen][0] or "the output"
        raise InputError(
            f"{name} is not finite in {dtype} on these inputs, and is in float64; no tolerance follows"
            " from that"
        )
    apart = float(np.abs(ran - exact).max(initial=0.0))
    largest = float(np.abs(exact).max(initial=0.0))
    origin = (
        f"{dtype} is {own:.2g} from float64 here; {RATIO:g} times that, or {RATIO:g} eps, for another"
    )
    relative = own + RATIO * max(own, grain)
    return Tolerance(dtype, relative, apart + RATIO * max(apart, grain * largest), origin)


def _by_nudges(program: Program, output: str | None) -> Tolerance:
    chosen = _chosen(program, output)
    exact = _finite(program, chosen, _again(program, chosen))
    moved = apart = 0.0
    for seed in range(NUDGES):
        given = {
            op.index: nudge_numbers(_wide(program.cache[op.index]), seed, f"{op.index}")
            for op in program.operations
            if op.kind in ("parameter", "input") and isinstance(program.cache[op.index], np.ndarray)
        }
        index = program.outputs[chosen][1]
        value = np.asarray(program.values([index], given)[index])
        moved = max(moved, distance(exact, value))
        apart = max(apart, float(np.abs(value - exact).max(initial=0.0)))
    eps, largest = epsilon("float64"), float(np.abs(exact).max(initial=0.0))
    origin = f"one unit in the last place of all inputs moves it by {moved:.2g}; {FACTOR:g} times that"
    return Tolerance("float64", FACTOR * max(moved, eps), FACTOR * max(apart, eps * largest), origin)


def _chosen(program: Program, output: str | None) -> int:
    names = [name for name, _ in program.outputs]
    if output is not None:
        if output not in names:
            raise InputError(f"output = {output!r}: the function returns {', '.join(map(repr, names))}")
        return names.index(output)
    if len(names) != 1:
        raise InputError(
            f"the function returns {len(names)} arrays; choose one by output ="
            f" {' or '.join(map(repr, names))}"
        )
    return 0


def _again(program: Program, chosen: int) -> np.ndarray:
    """Compute the chosen output again from the leaves, in float64."""
    index = program.outputs[chosen][1]
    bare = Program(program.name, program.operations, program.outputs)
    bare.cache = {
        op.index: _wide(program.cache[op.index]) for op in program.operations if op.run is None
    }
    return np.asarray(bare.values([index])[index])


def _finite(program: Program, chosen: int, value: np.ndarray) -> np.ndarray:
    if value.dtype.kind in "fc" and not np.isfinite(value).all():
        name = program.outputs[chosen][0] or "the output"
        raise InputError(f"{name} is not finite on these inputs; no tolerance follows from that")
    return value


def _wide(value: Any) -> Any:
    floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float64, copy=False) if floating else value


def _plain(value: Any) -> np.ndarray:
    """Convert an array of either framework, of any type, to float64."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value).astype(np.float64)
