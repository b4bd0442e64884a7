"""A check that arrays are the parameters that a model expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from vit_config.errors import WeightsError


class Described(Protocol):
    """An array, or its description in a header."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type."""
        ...


def match_arrays(expected: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Described]) -> np.dtype:
    """Check that `arrays` are exactly the parameters that a model expects.

    Returns:
        The floating-point type that all of them share.

    Raises:
        WeightsError: one message with everything missing, unexpected, of another shape or type.
    """
    if problems := mismatches(expected, arrays):
        raise WeightsError(f"{len(problems)} mismatches, nothing was loaded: " + "; ".join(problems))
    return next(iter(arrays.values())).dtype


def mismatches(
    expected: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, Described],
    *,
    of: str = "the weights",
    by: str = "the model",
) -> list[str]:
    """List everything in which arrays are not the parameters that are expected, a phrase each.

    Args:
        of: what the arrays are, for the phrases.
        by: what expects the parameters.
    """
    problems = [
        f"{name}: missing, {by} has {shape}" for name, shape in expected.items() if name not in arrays
    ]
    problems += [
        f"{name}: unexpected, of shape {tuple(array.shape)}"
        for name, array in arrays.items()
        if name not in expected
    ]
    problems += [
        f"{name}: shape {tuple(arrays[name].shape)} in {of}, {tuple(shape)} in {by}"
        for name, shape in expected.items()
        if name in arrays and tuple(arrays[name].shape) != tuple(shape)
    ]
    types: dict[np.dtype, list[str]] = {}
    for name, array in arrays.items():
        types.setdefault(array.dtype, []).append(name)
    if len(types) > 1:
        common = max(types, key=lambda dtype: len(types[dtype]))
        problems += [
            f"{name}: type {arrays[name].dtype}, the others are {common}"
            for dtype, names in types.items()
            if dtype != common
            for name in names
        ]
    elif types and next(iter(types)).name not in ("float16", "bfloat16", "float32", "float64"):
        problems.append(f"all tensors are {next(iter(types))}, expected a floating-point type")
    return problems
