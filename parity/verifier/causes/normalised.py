"""Ways to normalise a value, and the normalised values of a region, found by their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from parity.measure.nearness import MOST
from parity.verifier.causes.numbers import SMALL, slots
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.exchange import computing, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Region

PER_GAIN = 4
"""Fewest numbers of a value for each gain that is read from it."""
REDUCTIONS = frozenset(["sum", "mean", "var"])


class Norm(NamedTuple):
    """How a value is normalised."""

    shape: tuple[int, ...]
    """The value's own."""
    axes: tuple[int, ...]
    """Axes over which the statistics are taken."""
    split: int
    """The axis that is in groups, each of which has statistics of its own; -1 if none is."""
    groups: int
    centred: bool
    """Whether the mean is taken off."""

    @property
    def together(self) -> int:
        """How many numbers each of the statistics is of."""
        inner = self.shape[self.split] // self.groups if self.split >= 0 else 1
        return math.prod(self.shape[i] for i in self.axes) * inner

    def of(self, x: np.ndarray, epsilon: float) -> np.ndarray:
        """Return a value, normalised."""
        x = x - self.mean(x) if self.centred else x
        return x / np.sqrt(self.mean(x * x) + epsilon)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Return the mean that belongs to each number of a value."""
        if self.split < 0:
            return np.broadcast_to(x.mean(self.axes, keepdims=True), self.shape)
        parts = x.reshape(*self.shape[: self.split], self.groups, -1, *self.shape[self.split + 1 :])
        mean = parts.mean((self.split + 1, *(i + (i > self.split) for i in self.axes)), keepdims=True)
        return np.broadcast_to(mean, parts.shape).reshape(self.shape)


class Normalised(NamedTuple):
    """A normalised value of a region."""

    operation: int
    norm: Norm
    x: np.ndarray
    """What is normalised."""
    epsilon: float
    gain: np.ndarray
    """By what the value is multiplied."""


def found(region: Region, index: Index) -> Iterator[Normalised]:
    """Yield the normalised values of a region that are made of values that both sides have."""
    program = region.program
    epsilons = {0.0} | {
        float(np.ravel(slot.value)[0])
        for slot in slots(region)
        if np.size(slot.value) == 1 and slot.operation.name == "add"
    }
    counts = counts_of(region)
    read = [i for i in outside(region) if index.meets(program.operations[i])]
    for op in computing(region):
        if op.name not in ("mul", "div") or op.size < 2 or op.mark is None:
            continue
        own = np.asarray(program.values([op.index])[op.index])
        for i in (i for i in read if program.operations[i].size == op.size):
            for x in shaped(region, i, op.shape):
                for norm, epsilon in product(norms(x.shape, counts), sorted(epsilons)):
                    gain = _gain(norm.of(x, epsilon), own.reshape(x.shape)) if epsilon < SMALL else None
                    if gain is not None:
                        yield Normalised(op.index, norm, x, epsilon, gain)


def shaped(region: Region, index: int, *more: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield a value in its shape, in those that it had before it was reshaped, and in others."""
    operations = region.program.operations
    value = np.asarray(region.program.values([index])[index])
    shapes = [value.shape]
    while (op := operations[index]).name == "reshape" and op.inputs:
        index = op.inputs[0]
        shapes.append(operations[index].shape)
    yield from (value.reshape(shape) for shape in dict.fromkeys([*shapes, *more]))


def counts_of(region: Region) -> set[int]:
    """Return how many numbers a region's reductions take together."""
    operations = region.program.operations
    reductions = [op for op in computing(region) if op.name in REDUCTIONS and op.inputs and op.size]
    return {operations[op.inputs[0]].size // op.size for op in reductions}


def norms(shape: tuple[int, ...], counts: set[int]) -> Iterator[Norm]:
    """Yield the ways to normalise a value in which the statistics are of so many numbers: those with
    the fewest axes first, groups last."""
    long = [i for i, n in enumerate(shape) if n > 1]
    every = [axes for k in range(len(long) + 1) for axes in combinations(long, k)]
    for axes in every:
        if axes and math.prod(shape[i] for i in axes) in counts:
            yield from (Norm(shape, axes, -1, 1, centred) for centred in (True, False))
    for axes in every:
        rest = math.prod(shape[i] for i in axes)
        for split in (i for i in long if i not in axes):
            for groups in range(2, shape[split]):
                if shape[split] % groups == 0 and rest * shape[split] // groups in counts:
                    yield from (Norm(shape, axes, split, groups, centred) for centred in (True, False))


def _gain(normalised: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    """Return the gain, one for all or one for each row of an axis, by which a normalised value is
    multiplied; None where none explains the value."""
    for axis in (None, *range(value.ndim)):
        others = tuple(i for i in range(value.ndim) if i != axis)
        if value.size < PER_GAIN * (1 if axis is None else value.shape[axis]):
            continue
        squares = (normalised * normalised).sum(others, keepdims=True)
        gain = (normalised * value).sum(others, keepdims=True) / squares
        if distance(value, gain * normalised) <= MOST.norm:
            return gain
    return None
