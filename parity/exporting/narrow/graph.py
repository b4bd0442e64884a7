"""A program as its own type computes it: each operation in float32, its result rounded to the type.

That is what matrix units and fused kernels do: they accumulate in float32, and what they write to memory
is of the small type, infinite beyond its largest number. An operation that is *kept* leaves its result
in float32; what reads that computes in float32 as well, and rounds its own result unless it is kept too.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from parity.measure.error import relative_error
from parity.measure.shown import first_three
from vit_config import ConfigError

EXACT = frozenset(
    [
        "view",
        "_unsafe_view",
        "reshape",
        "flatten",
        "transpose",
        "permute",
        "t",
        "slice",
        "select",
        "cat",
        "stack",
        "expand",
        "unsqueeze",
        "squeeze",
        "clone",
        "contiguous",
        "split",
        "split_with_sizes",
        "chunk",
        "tensor_split",
        "unbind",
        "getitem",
        "neg",
        "abs",
        "relu",
        "maximum",
        "minimum",
        "amax",
        "amin",
        "where",
        "clamp",
        "repeat",
        "repeat_interleave",
        "roll",
        "flip",
        "index",
        "gather",
        "index_select",
        "embedding",
        "new_zeros",
        "zeros",
        "full",
        "masked_fill",
        "alias",
        "detach",
        "alias_copy",
        "broadcast_in_dim",
        "expand_dims",
        "dynamic_slice",
        "concatenate",
        "pad",
        "max",
        "min",
        "select_n",
        "rev",
        "copy",
        "stop_gradient",
        "reduce_max",
        "reduce_min",
        "sign",
    ]
)
"""Operations of either framework that move or choose numbers, and so round none."""
PLACES, RUNS = 24, 4
"""At how many places of a run its values are saved, and of how many runs: others go on from there."""
SAVED_BYTES = 2**30
"""Most bytes that are saved at one place times `PLACES`; beyond it, every run begins anew."""


@dataclass(frozen=True)
class Step:
    """One operation of a program."""

    name: str
    """``blocks.0.mlp.fc2.linear``, or ``mlp.py:66.dot_general.1`` where modules are not known."""
    line: str
    """``mlp.py:66``, the twin's line."""
    text: str
    inputs: tuple[int, ...]
    """The operations that it reads."""
    weights: int
    """How many numbers of the model it reads itself."""
    shape: tuple[int, ...]
    small: bool
    """Whether its result is of the small type."""
    exact: bool


@dataclass(frozen=True)
class Rounding:
    """What rounding the result of one operation to the small type does to it."""

    largest: float
    """Its largest number."""
    overflows: bool
    loss: float
    """Relative distance in the norm; of numbers that the type has in full, half its epsilon at most."""
    numbers: int

    @classmethod
    def of(cls, exact: np.ndarray, rounded: np.ndarray) -> Rounding:
        """Compare a result with itself rounded."""
        finite = np.isfinite(exact)
        overflows = bool((finite & ~np.isfinite(rounded)).any())
        largest = float(np.abs(exact[finite]).max(initial=0.0))
        loss = np.inf if overflows else relative_error(rounded, exact, holes=True)
        return cls(largest, overflows, loss, exact.size)


class Graph(ABC):
    """A program that can be run with any of its operations kept in float32."""

    steps: list[Step]
    outputs: tuple[int, ...]
    """The operations that make the program's outputs."""
    dtype: str
    """The small type."""
    largest: float
    """Its largest number."""
    epsilon: float
    """The distance from 1 to the next one."""
    images: int
    """How many it runs on."""

    @abstractmethod
    def called(self, index: int) -> str:
        """Return what an operation is called in its framework."""

    @abstractmethod
    def _compute(self, index: int, known: dict[int, Any], *, narrow: bool) -> Any:
        """Run an operation in float32 where its own type is the small one.

        Args:
            narrow: whether all that it reads and its result are of the small type.
        """

    @abstractmethod
    def _rounded(self, value: Any) -> Any:
        """Round a value, or several, to the small type, and return it in float32."""

    @abstractmethod
    def _arrays(self, value: Any) -> list[np.ndarray]:
        """Return a value, or several, as arrays."""

    def prepare(self, dtype: str, images: int) -> None:
        """Prepare for runs, once `steps` and `outputs` are there."""
        limits = ml_dtypes.finfo("float32" if dtype == "int8" else dtype)
        self.dtype, self.images = dtype, images
        self.largest, self.epsilon = float(limits.max), float(limits.eps)
        self._rounding = {i for i, each in enumerate(self.steps) if each.small and not each.exact}
        self.candidates = sorted(self._rounding)
        """The operations that round: those that can be kept."""
        self.seconds = [0.0] * len(self.steps)
        """How long each operation took in float32, when it last ran so."""
        self._last = {each: i for i, step in enumerate(self.steps) for each in step.inputs}
        self._marks = {len(self.steps) * k // PLACES for k in range(1, PLACES)}
        self._saved: OrderedDict[tuple[int, frozenset[int]], dict[int, Any]] = OrderedDict()

    def wide(self, kept: Collection[int]) -> set[int]:
        """Return the operations whose results are in float32 if some are kept."""
        wide: set[int] = set()
        for i, step in enumerate(self.steps):
            if step.small and (i in kept or (step.exact and not wide.isdisjoint(step.inputs))):
                wide.add(i)
        return wide

    def run(self, kept: Collection[int]) -> list[np.ndarray]:
        """Return the outputs with these operations kept."""
        kept = frozenset(kept)
        wide = self.wide(kept)
        start, known = 0, dict[int, Any]()
        for place, before in reversed(self._saved):
            if place > start and before == frozenset(i for i in kept if i < place):
                start, known = place, dict(self._saved[place, before])
        for i in range(start, len(self.steps)):
            if i in self._marks:
                self._save(i, kept, known)
            self._step(i, known, wide)
        return [self._arrays(known[i])[0] for i in self.outputs]

    def profile(self) -> tuple[list[np.ndarray], dict[int, Rounding]]:
        """Return the outputs with everything in float32, and what rounding each operation then does."""
        known: dict[int, Any] = {}
        found: dict[int, Rounding] = {}
        everything = range(len(self.steps))

        def seen(i: int, value: Any) -> None:
            pairs = zip(self._arrays(value), self._arrays(self._narrow(i, known, value)), strict=True)
            found[i] = Rounding.of(*next(pairs))

        for i in everything:
            self._step(i, known, everything, seen)
        return [self._arrays(known[i])[0] for i in self.outputs], found

    def _narrow(self, index: int, known: dict[int, Any], value: Any) -> Any:
        """Return the result of an operation that is not kept, given that in float32."""
        return self._rounded(value)

    def _step(
        self,
        i: int,
        known: dict[int, Any],
        wide: Collection[int],
        seen: Callable[[int, Any], None] = lambda index, value: None,
    ) -> None:
        started = time.perf_counter()
        step = self.steps[i]
        narrow = step.small and i not in wide and not any(each in wide for each in step.inputs)
        value = self._compute(i, known, narrow=narrow)
        self.seconds[i] = time.perf_counter() - started
        if i in self._rounding:
            seen(i, value)
            value = value if i in wide else self._narrow(i, known, value)
        if i in self._last or i in self.outputs:
            known[i] = value
        for each in step.inputs:
            if self._last[each] == i and each not in self.outputs:
                known.pop(each, None)

    def _save(self, place: int, kept: frozenset[int], known: dict[int, Any]) -> None:
        key = place, frozenset(i for i in kept if i < place)
        size = sum(each.nbytes for value in known.values() for each in self._arrays(value))
        if size * PLACES * RUNS <= SAVED_BYTES:
            self._saved[key] = dict(known)
            self._saved.move_to_end(key)
        while len(self._saved) > PLACES * RUNS:
            self._saved.popitem(last=False)

    def named(self, names: Sequence[str]) -> set[int]:
        """Return the operations of modules, lines or names.

        Raises:
            ConfigError: nothing that rounds is called so.
        """
        found: set[int] = set()
        for name in names:
            these = [i for i in self.candidates if self._is_called(self.steps[i], name)]
            if not these:
                some = first_three([self.steps[i].name for i in self.candidates])
                raise ConfigError(
                    f"--keep-float32 {name}: no operation that rounds is called so; give auto, a line"
                    f" such as block.py:46, or the beginning of names such as {some}"
                )
            found.update(these)
        return found

    @staticmethod
    def _is_called(step: Step, name: str) -> bool:
        operation = f"{step.line}.{step.name.rpartition('.')[2]}"
        return any(f"{each}.".startswith(f"{name}.") for each in (step.name, operation))


def numbered(names: Iterable[str]) -> list[str]:
    """Return names with ``.0``, ``.1`` behind those that there are several of."""
    names = list(names)
    count, seen = Counter(names), Counter[str]()
    result = []
    for name in names:
        result.append(f"{name}.{seen[name]}" if count[name] > 1 else name)
        seen[name] += 1
    return result
