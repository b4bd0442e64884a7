"""What a module of the catalogue has: a computation with independent aspects, each with its options."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np

from parity.verifier.diagnose.segment import Hypothesis


@dataclass(frozen=True)
class Option:
    """One way in which an aspect may have been computed."""

    label: str
    """In words, with numbers: ``epsilon 1e-06``. The same label on both sides means the same thing."""
    value: Any = None
    """What `Computation.compute` needs to know of it."""
    slug: str = ""
    """The name of the cause where one side departs by this option; the aspect's if empty."""
    torch: str = ""
    """How it is written in PyTorch."""
    jax: str = ""
    """How it is written in JAX and Flax."""


@dataclass(frozen=True)
class Aspect:
    """One independent choice of a computation."""

    name: str
    slug: str
    """The name of the cause where two sides differ in it."""
    options: tuple[Option, ...]
    """The ordinary one first."""
    alone: bool = False
    """Whether it is tried only while all else is ordinary: aspects multiply each other's work."""


Values = Mapping[str, Any]
"""The values of the chosen options, by the names of the aspects."""


@dataclass(frozen=True)
class Computation:
    """A way to compute a segment's result again."""

    kind: str
    """What it is; hypotheses of the same kind can be compared across two sides."""
    aspects: tuple[Aspect, ...]
    compute: Callable[[Values], np.ndarray | None]
    """Recomputes the result; None where the choices make no sense together."""
    departures: int = 2
    """In how many aspects at once it may depart from the ordinary."""
    unusual: int = 0
    """How many departures even its ordinary choice is."""
    slug: Callable[[Values, Values], str] | None = field(default=None, compare=False)
    """Names the cause from what A and B do, where the options are too many to name each."""

    def choices(self, departures: int) -> Iterator[dict[str, Option]]:
        """Every choice of options that departs from the ordinary in exactly so many aspects."""
        ordinary = {aspect.name: aspect.options[0] for aspect in self.aspects}
        free = [aspect for aspect in self.aspects if departures < 2 or not aspect.alone]
        for chosen in combinations(free, departures):
            for options in product(*(aspect.options[1:] for aspect in chosen)):
                yield ordinary | {a.name: o for a, o in zip(chosen, options, strict=True)}

    def count(self, departures: int) -> int:
        """How many those are."""
        free = [len(a.options) - 1 for a in self.aspects if departures < 2 or not a.alone]
        return sum(math.prod(chosen) for chosen in combinations(free, departures))

    def value(self, options: Mapping[str, Option]) -> np.ndarray | None:
        """What comes out under a choice."""
        with np.errstate(all="ignore"):
            return self.compute({name: option.value for name, option in options.items()})


def hypotheses_of(computations: Iterable[Computation]) -> Iterator[Hypothesis]:
    """Every hypothesis of these computations, the ordinary ones first."""
    for computation in computations:
        for departures in range(computation.departures + 1):
            for options in computation.choices(departures):
                value = computation.value(options)
                if value is not None:
                    yield Hypothesis({name: o.label for name, o in options.items()}, value)
