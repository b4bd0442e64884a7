"""Fits of numbers to recorded values, and the leaves of a program as one long vector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

CHOSEN = 4
"""Most significant digits that a number chosen by a person has: 0.9989, 1e-06, 0.01001."""


TAKEN, LEAST = "decayed share of leaves", "least share of leaves"
"""Aspects that say what share of the parameters a decay takes, and what share each leaf would tell."""
UNTOLD = "untold leaves"
"""Aspect that lists the leaves of which the numbers do not tell whether they are in a list."""
RATE = "rate of all leaves"
"""Aspect that says the number of a learning rate that is called by its step."""

RARE = 1e-3
"""Most that the chance of an accident may be where a number is named. Some thirty rules are tried on
each side: one wrong name in twenty loops whose rule is not in the catalogue, were each a new chance."""
PARALLEL = 1e-10
"""How far the cosine of two vectors is from one where they are parallel: nearer, and to solve for both
loses more than ten of the sixteen digits of float64."""


class JoinedLeaves:
    """Leaves joined into one vector, so that a rule is computed for all of them at once."""

    def __init__(self, leaves: Mapping[str, np.ndarray]) -> None:
        self.names = tuple(leaves)
        sizes = [leaves[name].size for name in self.names]
        self.leaf = np.repeat(np.arange(len(sizes)), sizes)  # (N,): the number of each element's leaf
        self._cuts = np.cumsum(sizes)[:-1]
        self._sizes = np.maximum(np.array(sizes, dtype=np.float64), 1)

    def join(self, leaves: Mapping[str, np.ndarray], kind: str = "") -> np.ndarray | None:
        """Join the leaves, or their moments of one kind, to a vector (N,); None if one is missing."""
        keys = [f"{name} {kind}" if kind else name for name in self.names]
        if not keys or any(key not in leaves for key in keys):
            return None
        return np.concatenate([leaves[key].reshape(-1) for key in keys])

    def split(self, vector: np.ndarray, kind: str = "") -> dict[str, np.ndarray]:
        """Split a vector into leaves, the inverse of `join`."""
        parts = zip(self.names, np.split(vector, self._cuts), strict=True)
        return {f"{name} {kind}" if kind else name: part for name, part in parts}

    def named(self, which: np.ndarray) -> str:
        """Return the names of some leaves (leaves,), sorted."""
        return ", ".join(sorted(name for name, yes in zip(self.names, which, strict=True) if yes))

    def total(self, vector: np.ndarray) -> np.ndarray:
        """Return the sum over each leaf: (leaves,)."""
        return np.bincount(self.leaf, vector, minlength=len(self.names))

    def rms(self, vector: np.ndarray) -> np.ndarray:
        """Return the root mean square over each leaf: (leaves,)."""
        return np.sqrt(self.total(vector**2) / self._sizes)

    def project(self, vector: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Remove the component of `vector` along `out`, leaf by leaf: a fit to the rest is a fit in
        which every leaf has a multiple of `out` of its own."""
        size = self.total(out**2)
        along = np.divide(self.total(vector * out), size, out=np.zeros_like(size), where=size > 0)
        return vector - along[self.leaf] * out


def snap(value: float, uncertainty: float) -> float:
    """Return the number with the fewest significant digits within `uncertainty` of a value."""
    if not np.isfinite(value) or abs(value) <= uncertainty:
        return 0.0 if np.isfinite(value) else value
    for digits in range(16):
        short = float(f"{value:.{digits}e}")
        if abs(short - value) <= uncertainty:
            return short
    return value


def digits(value: float) -> int:
    """Count the significant digits of a number."""
    return len(f"{value:.15e}".partition("e")[0].replace("-", "").replace(".", "").rstrip("0"))


def chosen(value: float) -> bool:
    """Return whether a fitted number looks chosen by a person. Others come from rules that are not in
    the catalogue: after one step, AdaBelief's second moment is Adam's with a beta2 of 0.99919."""
    return np.isfinite(value) and digits(value) <= CHOSEN


def chance(value: float, uncertainty: float) -> float:
    """Return how likely any number at all comes this near to one of so few significant digits.

    Numbers of d digits lie 10^(1 - d) of their power of ten apart, and a fit that is off by u finds one
    of them in an interval 2 u long.
    """
    if not np.isfinite(value) or not value:
        return 1.0
    spacing = 10.0 ** (np.floor(np.log10(abs(value))) + 1 - digits(value))
    return min(1.0, 2 * uncertainty / spacing)


def is_told(value: float, uncertainty: float) -> bool:
    """Return whether a fitted number looks chosen by a person, and that is no accident.

    Args:
        uncertainty: how near it comes to what was fitted, or a rounding of that.
    """
    return chosen(value) and chance(value, uncertainty) <= RARE


def text(value: float) -> str:
    """Format a number for print."""
    return f"{value:.10g}"


def last_number(said: str) -> float:
    """Return the last number of what a side does; 0 where it has none."""
    numbers = re.findall(r"\d[\d.]*(?:e[+-]?\d+)?", said)
    return float(numbers[-1].rstrip(".")) if numbers else 0.0


def slope(x: np.ndarray, y: np.ndarray, noise: np.ndarray, eps: float) -> float | None:
    """Fit the factor of y = factor * x by weighted least squares, snapped; None if x is only noise."""
    x, y = x / noise, y / noise
    size = float(x @ x)
    if size <= 1:
        return None
    value = float(x @ y) / size
    return snap(value, 1 / np.sqrt(size) + 16 * eps * abs(value))


def two_slopes(
    x: tuple[np.ndarray, np.ndarray], y: np.ndarray, noise: np.ndarray, eps: float
) -> tuple[float, float] | None:
    """Fit the factors of y = f0 * x[0] + f1 * x[1] as `slope` does; None also if they are parallel."""
    matrix = np.stack([each / noise for each in x], axis=1)  # (N, 2)
    sizes = np.linalg.norm(matrix, axis=0)
    if (sizes <= 1).any():
        return None
    gram = (matrix / sizes).T @ (matrix / sizes)
    if abs(gram[0, 1]) > 1 - PARALLEL:
        return None
    values = np.linalg.solve(gram, (matrix / sizes).T @ (y / noise)) / sizes
    loose = np.sqrt(np.diag(np.linalg.inv(gram))) / sizes + 16 * eps * np.abs(values)
    first, second = (snap(float(v), float(u)) for v, u in zip(values, loose, strict=True))
    return first, second


class Shared(NamedTuple):
    """A multiple of one vector that some leaves have and others do not."""

    factor: float
    uncertainty: float
    on: np.ndarray
    """(leaves,): whether a leaf has it."""
    sure: np.ndarray
    """(leaves,): whether that can be told for a leaf."""


def fit_multiple(
    flat: JoinedLeaves, rest: np.ndarray, along: np.ndarray, noise: np.ndarray, eps: float
) -> Shared:
    """Fit the one multiple of `along` that explains `rest` on the leaves where rounding does not."""
    off = flat.rms(rest / noise)
    unexplained = off > 1
    if not unexplained.any():
        return Shared(0.0, 0.0, np.zeros(len(off), dtype=bool), np.ones(len(off), dtype=bool))
    here = unexplained[flat.leaf]
    x, y = (along / noise)[here], (rest / noise)[here]
    size = float(x @ x)
    if size == 0:
        return Shared(0.0, 0.0, np.zeros(len(off), dtype=bool), np.ones(len(off), dtype=bool))
    factor = float(x @ y) / size
    on = flat.rms((rest - factor * along) / noise)
    sure = np.maximum(on, off) > 3 * np.minimum(on, off) + 0.03
    return Shared(factor, 1 / np.sqrt(size) + 16 * eps * abs(factor), on < off, sure)
