"""One tensor held against its limit, and all tensors of one level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parity.measure.policies import Limit
from parity.measure.site import Site


@dataclass(frozen=True)
class Judged:
    """How one tensor fared."""

    site: Site
    errors: tuple[float, ...]
    """Of the two against each other, one; of each of the twins against its own float64 run, JAX's and
    PyTorch's."""
    limit: float
    """What the largest error may be."""
    origin: str
    """Where the limit comes from."""
    other: Site | None = None
    """Where the partner was seen, if elsewhere."""
    finite: bool = True
    """Whether all numbers of both are."""

    @classmethod
    def by(cls, limit: Limit, site: Site, *errors: float) -> Judged:
        """A tensor of a name that both sides share, held against a policy's limit."""
        return cls(site, errors, limit.value, limit.origin)

    @property
    def partner(self) -> Site:
        """Where the other side's was seen."""
        return self.other or self.site

    @property
    def error(self) -> float:
        """The largest error."""
        return max(self.errors)

    @property
    def score(self) -> float:
        """The largest error over its limit; above 1 is a difference."""
        return 0.0 if self.error == 0.0 else self.error / self.limit if self.limit else math.inf

    @property
    def passed(self) -> bool:
        """Whether the tensor is within its limit."""
        return self.score <= 1.0


@dataclass(frozen=True)
class LevelResult:
    """All tensors of one level in one type."""

    dtype: str
    level: str
    count: int
    failures: int
    worst: Judged
    """The tensor nearest to, or farthest beyond, its limit."""
    largest: float
    """The largest error of any tensor."""

    @classmethod
    def of(cls, dtype: str, level: str, judged: Sequence[Judged]) -> LevelResult:
        """The sum of at least one tensor."""
        return cls(
            dtype=dtype,
            level=level,
            count=len(judged),
            failures=sum(not each.passed for each in judged),
            worst=max(judged, key=lambda each: each.score),
            largest=max(each.error for each in judged),
        )

    def and_then(self, later: LevelResult) -> LevelResult:
        """The sum of this and of what was judged after it, as of the next step."""
        return LevelResult(
            dtype=self.dtype,
            level=self.level,
            count=self.count + later.count,
            failures=self.failures + later.failures,
            worst=max(self.worst, later.worst, key=lambda each: each.score),
            largest=max(self.largest, later.largest),
        )

    @property
    def passed(self) -> bool:
        """Whether every tensor of the level is within its limit."""
        return self.failures == 0
