"""Comparison of a program on two devices, or of two programs under two settings, in their own types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from parity.verifier.devices.report import Devices
from parity.verifier.devices.rounding import Apart, judge
from parity.verifier.devices.step import Run, Step
from parity.verifier.programs.mistakes import in_one_line
from parity.verifier.programs.sides import GivenSide
from vit_config import ConfigError

NUDGED = 3


def run_as_it_is(given: GivenSide, device: str) -> Run:
    """Run a side on a device of its framework; see `of_torch.run` and `of_jax.run`."""
    with in_one_line(given.name, given.function, given.args, given.kwargs):
        if given.torch:
            from parity.verifier.devices import of_torch

            return of_torch.run(given, device or "cpu")
        from parity.verifier.devices import of_jax

        return of_jax.run(given, device)


def compare_devices(
    a: Run, b: Run, *, settings: Mapping[str, str], on_stage: Callable[[str], None] = lambda _: None
) -> Devices:
    """Run each operation of B on A's operands, and list those that differ by more than rounding.

    Args:
        settings: B's environment variables, for the report.

    Raises:
        ConfigError: the two are programs of two frameworks.
    """
    if a.about.framework != b.about.framework:
        raise ConfigError(
            f"A is a program of {a.about.framework}, B of {b.about.framework}; their operations are"
            " compared in float64, without --as-is"
        )
    moved = [a.nudged(seed) for seed in range(NUDGED)]
    apart: list[Apart] = []
    alone: list[str] = []
    judged = drawn = 0
    for one, other in _aligned(a.steps, b.steps, alone):
        on_stage(f"operation {judged + drawn + 1} of {len(a.steps)}")
        if one.draws:
            drawn += 1
            continue
        judged += 1
        found = judge(one, other.run(one.operands), other.signature.attributes)
        if found is not None:
            apart.append(found)
    outputs = [
        (path, *_whole(values, theirs, [each[i] for each in moved]))
        for i, ((path, values), (_, theirs)) in enumerate(zip(a.outputs, b.outputs, strict=False))
    ]
    return Devices(a.about, b.about, dict(settings), tuple(apart), judged, drawn, tuple(alone),
                   tuple(outputs), not any(each.any() for _, each in a.outputs))  # fmt: skip


def _aligned(a: list[Step], b: list[Step], alone: list[str]) -> Iterator[tuple[Step, Step]]:
    """Yield the operations that two runs have in common, in order, and list the others."""
    keys = [[each.signature._replace(attributes="") for each in side] for side in (a, b)]
    for kind, i, to_i, j, to_j in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(a[i:to_i], b[j:to_j], strict=True)
            continue
        for side, steps in (("A", a[i:to_i]), ("B", b[j:to_j])):
            alone += [f"{side}: {each.signature.name} {each.source or ''}" for each in steps]


def _whole(a: np.ndarray, b: np.ndarray, moved: list[Any]) -> tuple[float, float]:
    """Return how far an output of the whole runs is apart, and how far rounding alone moves it."""
    if a.shape != b.shape:
        return math.inf, 0.0
    wide = [np.asarray(each, np.float64).ravel() for each in (a, b, *moved)]
    if any(not np.isfinite(each).all() for each in wide):
        return (0.0 if np.array_equal(wide[0], wide[1], equal_nan=True) else math.inf), 0.0
    size = float(np.linalg.norm(wide[0])) or 1.0
    away = [float(np.linalg.norm(each - wide[0])) / size for each in wide[1:]]
    return away[0], max(away[1:], default=0.0)
