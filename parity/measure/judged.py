"""One tensor held against its limit, and all tensors of one level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parity.measure.policies import Limit
from parity.measure.site import Site


@dataclass(frozen=True)
class Judged:
    """The errors of one tensor, and the limit they are held against."""

    site: Site
    errors: tuple[float, ...]
    """One error, between the two programs; or two, between each twin and its own float64 run:
    JAX's, then PyTorch's."""
    limit: float
    """Largest error allowed."""
    origin: str
    """The rule that the limit comes from."""
    other: Site | None = None
    """Site of the other side's tensor, if it differs."""
    finite: bool = True
    """Whether all numbers of both tensors are finite."""

    @classmethod
    def by(cls, limit: Limit, site: Site, *errors: float) -> Judged:
        """Judge a tensor that both sides have at the same site by a policy's limit."""
        return cls(site, errors, limit.value, limit.origin)

    @property
    def partner(self) -> Site:
        """Site of the other side's tensor."""
        return self.other or self.site

    @property
    def error(self) -> float:
        """The largest error."""
        return max(self.errors)

    @property
    def score(self) -> float:
        """The largest error divided by the limit; above 1 is a difference."""
        return 0.0 if self.error == 0.0 else self.error / self.limit if self.limit else math.inf

    @property
    def passed(self) -> bool:
        """Whether the tensor is within its limit."""
        return self.score <= 1.0


@dataclass(frozen=True)
class LevelResult:
    """Summary of all tensors of one level in one type."""

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
        """Summarise at least one judged tensor."""
        return cls(
            dtype=dtype,
            level=level,
            count=len(judged),
            failures=sum(not each.passed for each in judged),
            worst=max(judged, key=lambda each: each.score),
            largest=max(each.error for each in judged),
        )

    def and_then(self, later: LevelResult) -> LevelResult:
        """Return the summary of these tensors and of a later step's."""
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
