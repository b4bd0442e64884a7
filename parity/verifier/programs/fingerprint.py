"""Fingerprints of values, whatever the order of their elements: means of powers, extremes, infinities.

Means, not sums: a value and the same value repeated (broadcast) have one fingerprint. Two values are
equal up to rounding where all seven numbers are; two different values do not agree in all of them to
thirteen digits by chance.
"""

from __future__ import annotations

import math

import numpy as np

from parity.measure.nearness import LEAST as NEAR
from parity.measure.nearness import Nearness

MEAN, SQUARE, CUBE, FOURTH, LEAST, MOST, INFINITE = range(7)

HUGE = 1e30
"""Size from which a number stands for infinity: masks are filled with -inf, the least float32 or -1e30
alike."""

EXACT = 2.0**53
"""Size from which integers are told apart one by one: float64 does not have all of them."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd factor that spreads neighbours over all integers of 64 bits."""

ABOVE = 2**0.5 - 1
"""What a number that stands for +inf counts beyond 1, so that no count of +inf equals one of -inf."""

_FINITE = HUGE**2 / 4
"""Sum of squares below which nothing stands for infinity, neither in an array nor in one so near."""

_CHUNK = 1 << 13
"""Elements taken at once: few enough for the cache, and for a dot product in one thread."""


def fingerprint(value: np.ndarray) -> np.ndarray:
    """Return seven numbers of an array that do not depend on the order of its elements.

    For a complex array, those of its real and imaginary parts together.
    """
    value = np.asarray(value)
    if value.dtype.kind == "c":
        value = np.stack([np.real(value), np.imag(value)])
    flat = value.ravel(order="K")
    if not flat.size:
        return np.zeros(7)
    sums, least, most = [0.0] * 5, math.inf, -math.inf
    integers = flat.dtype.kind in "iu"
    huge = EXACT if integers else HUGE
    for start in range(0, flat.size, _CHUNK):
        own = flat[start : start + _CHUNK]
        part = own.astype(np.float64, copy=False)
        low, high = np.minimum.reduce(part), np.maximum.reduce(part)
        if not (low > -huge and high < huge):  # also NaN
            finite = np.abs(part) < huge
            large = own[~finite]
            counts = _told_apart(large) if integers else 1 + ABOVE * (part >= huge)[~finite]
            sums[4] += counts.sum()
            part = np.where(finite, part, 0.0)
            low, high = part.min(), part.max()
        square = part * part
        sums[0] += np.add.reduce(part)
        sums[1] += np.add.reduce(square)
        sums[2] += np.dot(square, part)
        sums[3] += np.dot(square, square)
        least, most = min(least, low), max(most, high)
    n = flat.size
    return np.array([sums[0] / n, sums[1] / n, sums[2] / n, sums[3] / n, least, most, sums[4] / n])


def _told_apart(values: np.ndarray) -> np.ndarray:
    """Return for each large integer a number of its own, at least 1; for the least and the largest
    int64, which infinities become, that of the infinity."""
    ends = np.iinfo(np.int64)
    bits = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64).view(np.uint64)
    counts = 2 + (bits * _SPREAD).astype(np.float64) / 2.0**64
    return np.where(values == ends.min, 1.0, np.where(values == ends.max, 1 + ABOVE, counts))


def _infinite_from(value: np.ndarray) -> float:
    """Return the size from which numbers of an array stand for infinity: for integers that of the least
    int64, which -inf becomes."""
    return {"i": 2.0**63, "u": 2.0**64}.get(value.dtype.kind, HUGE)


def same(a: np.ndarray, b: np.ndarray, near: Nearness = NEAR) -> bool:
    """Return whether two fingerprints are of the same numbers, up to what rounding may do to them."""
    square, fourth = max(a[SQUARE], b[SQUARE]), max(a[FOURTH], b[FOURTH])
    largest = max(-a[LEAST], a[MOST], -b[LEAST], b[MOST])
    close = near.means
    return bool(
        abs(a[SQUARE] - b[SQUARE]) <= close * square
        and abs(a[MEAN] - b[MEAN]) <= close * square**0.5
        and abs(a[FOURTH] - b[FOURTH]) <= close * fourth
        and abs(a[CUBE] - b[CUBE]) <= close * fourth**0.75
        and abs(a[LEAST] - b[LEAST]) <= near.extremes * largest
        and abs(a[MOST] - b[MOST]) <= near.extremes * largest
        and abs(a[INFINITE] - b[INFINITE]) <= close
    )


def fingerprint_distances(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return the distances of the means and of the extremes of two fingerprints, relative to the sizes
    that `same` uses; infinite where their shares of infinities differ."""
    square, fourth = max(a[SQUARE], b[SQUARE]), max(a[FOURTH], b[FOURTH])
    largest = max(-a[LEAST], a[MOST], -b[LEAST], b[MOST])
    if not square or a[INFINITE] != b[INFINITE]:
        return (math.inf, math.inf) if a[INFINITE] != b[INFINITE] else (0.0, 0.0)
    apart = np.abs(a - b)
    means = max(
        apart[SQUARE] / square, apart[MEAN] / square**0.5,
        apart[FOURTH] / fourth if fourth else 0.0, apart[CUBE] / fourth**0.75 if fourth else 0.0,
    )  # fmt: skip
    return float(means), float(max(apart[LEAST], apart[MOST]) / largest) if largest else 0.0


def is_plain(mark: np.ndarray) -> bool:
    """Return whether many values have such numbers: one simple constant, or only zeros and ones."""
    if mark[LEAST] == mark[MOST]:
        scaled = mark[LEAST] * 1024
        return bool(scaled == round(scaled) and abs(scaled) < 1 << 20)
    return bool(
        mark[MEAN] == mark[SQUARE] == mark[CUBE] == mark[FOURTH] and mark[LEAST] == 0 and mark[MOST] == 1
    )


def mean_square(value: np.ndarray) -> float:
    """Return the mean of the squares of an array of float64; not finite where it is too large."""
    flat = value.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        parts = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
        return float(sum(np.dot(part, part) for part in parts)) / flat.size


def squares(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return the sum of the squares of an array of float64, and that of its differences from another of
    its shape; not finite where they are too large."""
    own = apart = 0.0
    order = "K" if a.strides == b.strides else "C"
    flat, other = a.ravel(order=order), b.ravel(order=order)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            difference = part - other[start : start + _CHUNK]
            own += np.dot(part, part)
            apart += np.dot(difference, difference)
    return float(own), float(apart)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the relative distance in the norm; infinite unless infinities, and integers that float64
    does not have, stand at the same places."""
    if np.shape(a) != np.shape(b):
        return np.inf
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == b.dtype == np.float64:
        own, apart = squares(a, b)
        if 1 / _FINITE < own < _FINITE and apart < _FINITE:
            return math.sqrt(apart / own)
    integers = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    apart_at = a != b if integers else None
    huge_a, huge_b = (EXACT if integers else _infinite_from(each) for each in (a, b))
    a, b = (np.asarray(each, np.complex128 if np.iscomplexobj(each) else np.float64) for each in (a, b))
    big_a, big_b = ~(np.abs(a) < huge_a), ~(np.abs(b) < huge_b)
    if (big_a != big_b).any() or ((a > 0) != (b > 0))[big_a].any():
        return np.inf
    if apart_at is not None and apart_at[big_a].any():
        return np.inf
    a, b = np.where(big_a, 0, a), np.where(big_b, 0, b)
    norm = float(np.linalg.norm(a))
    apart = float(np.linalg.norm(a - b))
    return 0.0 if not apart else apart / norm if norm else np.inf
