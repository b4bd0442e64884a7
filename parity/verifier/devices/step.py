"""One operation of a program as it ran on a device, and what a device says of itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from parity.verifier.programs.callables import is_floating
from parity.verifier.programs.names import LAYOUT
from parity.verifier.programs.operation import Source

MOVES = LAYOUT | {"slice", "concat", "split", "unbind", "stack", "pad", "gather", "dynamic_update_slice"}
"""Operations that only move numbers, which no device does otherwise."""
Kinds = tuple[tuple[str, tuple[int, ...]], ...]


class About(NamedTuple):
    """Where and by what a side runs."""

    framework: str
    version: str
    device: str


class Signature(NamedTuple):
    """What two sides must have in common for an operation of one to be one of the other."""

    name: str
    """In the vocabulary of `programs/names.py`."""
    operands: Kinds
    """Type and shape of each array that it reads."""
    results: Kinds
    attributes: str = ""


@dataclass
class Step:
    """An operation that ran."""

    signature: Signature
    source: Source | None
    operands: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    run: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = field(repr=False)
    """Runs it again on its device."""
    draws: bool = False
    """Whether it draws random numbers, which no other device needs to draw alike."""


@dataclass
class Run:
    """A program that ran on a device, whole and operation by operation."""

    about: About
    steps: list[Step]
    outputs: list[tuple[str, np.ndarray]]
    """Path and values of each output of the whole run."""
    nudged: Callable[[int], list[np.ndarray]] = field(repr=False)
    """Returns the outputs of a whole run whose leaves are moved by a rounding each, drawn by a seed."""


def kinds_of(arrays: Sequence[np.ndarray]) -> Kinds:
    """Return types and shapes."""
    return tuple((each.dtype.name, each.shape) for each in arrays)


def nudge(values: Any, rng: np.random.Generator) -> Any:
    """Move floating point numbers up or down by half a unit in the last place of their type."""
    array = np.asarray(values)
    if not is_floating(array):
        return values
    factor = 1 + rounding_of(array.dtype) * rng.choice([-1.0, 1.0], array.shape)
    with np.errstate(all="ignore"):
        return (array.astype(np.float64) * factor).astype(array.dtype)


def rounding_of(dtype: np.dtype) -> float:
    """Return the largest relative error of rounding to a floating point type."""
    return float(ml_dtypes.finfo(dtype).eps) / 2
