"""Calls of modules, and pairs of tensors at their inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from parity.measure.traces import Event, Trace
from parity.measure.traces.sample import thin_array
from vit_config import InputError

KINDS = {
    "norm": r"norm",
    "linear": r"linear|dense",
    "conv": r"conv",
    "activation": r"gelu|relu|silu|swish|activation|^act$|tanh|softmax|sigmoid",
    "identity": r"identity|drop",
}
"""Kinds of modules, told by the class name unless they call other modules: a ConvBlock is no
convolution."""


class Counterpart(NamedTuple):
    """Parameters of B that hold the numbers of one of A."""

    names: tuple[str, ...]
    index: np.ndarray | None  # pyright: ignore[reportIncompatibleMethodOverride]
    """Position of each of A's numbers among all numbers of these parameters; None: as they are."""


class Parts(NamedTuple):
    """Tensors of B that hold the numbers of one of A, and where; see `Counterpart`."""

    events: tuple[Event, ...]
    index: np.ndarray | None  # pyright: ignore[reportIncompatibleMethodOverride]


class EventPair(NamedTuple):
    """Two events that recorded what should be the same tensor."""

    a: Event
    b: Event
    axes: tuple[int, ...] | None
    """Transposition from the layout of `b` to that of `a`; None if the layouts are the same."""
    parts: Parts | None = None
    """Tensors that hold what `a` does, if they are not called or laid out alike; `b` is the first."""

    @property
    def all_b(self) -> tuple[Event, ...]:
        """Every tensor of B that holds numbers of `a`."""
        return self.parts.events if self.parts else (self.b,)


class ModuleCall(NamedTuple):
    """One call of one module."""

    path: str
    call: int


Ports = dict[ModuleCall, dict[str, Event]]
"""Events at the ports of each call."""


def layout_between(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | Literal["same"] | None:
    """Return the transposition from shape `b` to shape `a`; "same" if they are equal, None if none fits.

    Feature maps may be channels-first on one side and channels-last on the other.
    """
    if tuple(a) == tuple(b):
        return "same"
    if len(a) == len(b) == 4:
        for axes in ((0, 3, 1, 2), (0, 2, 3, 1)):
            if tuple(b[i] for i in axes) == tuple(a):
                return axes
    return None


def kind_of(trace: Trace, path: str) -> str:
    """Return the kind of a module: a key of `KINDS`, or ``other``."""
    if path in trace.holders or path not in trace.modules:
        return "other"
    name = trace.modules[path].name.lower()
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other")


def main_pair(side: str, mine: Mapping[str, Event], theirs: Mapping[str, Event]) -> EventPair | None:
    """Pair the first input or output of A with the first one of B that can be the same tensor."""
    first = next((event for port, event in mine.items() if re.match(rf"{side}\b", port)), None)
    if first is None:
        return None
    candidates = (event for port, event in theirs.items() if re.match(rf"{side}\b", port))
    return next((pair for event in candidates if (pair := pair_of(first, event))), None)


def pair_of(a: Event, b: Event) -> EventPair | None:
    """Pair two events; None if their shapes cannot be those of one tensor."""
    axes = layout_between(a.shape, b.shape)
    if axes is None:
        return None
    return EventPair(a, b, None if axes == "same" else axes)


def gathered(
    arrays: Sequence[np.ndarray], index: np.ndarray | None, shape: Sequence[int] | None
) -> np.ndarray:
    """Return the numbers of some arrays at an index, in a shape (None: as a row)."""
    row = np.concatenate([each.reshape(-1) for each in arrays])
    row = row if index is None else row[index]
    return row if shape is None else row.reshape(shape)


def read_pair(a: Trace, b: Trace, pair: EventPair) -> tuple[np.ndarray, np.ndarray]:
    """Read both tensors in A's layout; if only one is a sample, the same elements of the other.

    Raises:
        InputError: both are samples, of different elements.
    """
    if pair.parts is not None:
        x = a.read(pair.a)
        return x, gathered([b.read(each) for each in pair.parts.events], pair.parts.index, x.shape)
    x, y = a.read(pair.a), b.read(pair.b)
    mine, theirs = pair.a.spacing, pair.b.spacing
    if pair.axes is not None:
        y = y.transpose(pair.axes)
        theirs = theirs and tuple(theirs[axis] for axis in pair.axes)
    if mine == theirs:
        return x, y
    if mine and theirs:
        raise InputError(
            f"{a.path} and {b.path} keep other elements of {pair.a.site}; record both with the same"
            " `keep`"
        )
    return (x, thin_array(y, mine)) if mine else (thin_array(x, theirs or ()), y)
