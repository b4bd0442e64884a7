"""How the numbers of a parameter are related to those of a tensor of the file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import ml_dtypes
import numpy as np

from parity.measure.error import relative_error
from parity.verifier.match.arrange import arrange
from parity.verifier.match.fingerprint import SLAB, bits, common_type, mixed
from vit_config.choices import Resampling
from vit_config.numerics.resample import RULES, resample_rows

NEAR = 0.05
"""Relative distance below which numbers are those of the file, trained further or averaged."""
RESAMPLED: tuple[Resampling, ...] = tuple(rule for rule in RULES if rule != "leading_rows")
"""Rules for tables; the other one cuts."""
MOST_PREFIX = 8
"""Most tokens in front of a grid of positions."""
COARSE = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class Related(NamedTuple):
    """The relation of a parameter to a tensor of the file."""

    held: bool
    """Whether the parameter holds the tensor's numbers."""
    state: str
    """In a word: ``bit for bit``, ``transposed``, ``cast to float16``, or what is wrong."""
    words: str = ""
    """The details."""


def relate(ours: np.ndarray, theirs: np.ndarray) -> Related:
    """Compare a parameter with the tensor of its name.

    Args:
        ours: the model's numbers.
        theirs: the file's.
    """
    if ours.shape == theirs.shape or ours.size == theirs.size == 1:
        state = _same(ours, theirs.reshape(ours.shape))
        if state:
            return Related(True, state)
    kind = common_type(ours.dtype, theirs.dtype)
    if kind is not None and ours.size == theirs.size and as_set(ours, kind) == as_set(theirs, kind):
        return _of_the_same_numbers(ours, theirs, kind)
    if ours.shape != theirs.shape:
        return _of_another_shape(ours, theirs)
    return _of_other_numbers(ours, theirs)


def _same(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Return how two arrays of one shape are the same numbers; empty if they are not."""
    with np.errstate(all="ignore"):
        cast = theirs.astype(ours.dtype, copy=False)
    if ours.dtype.kind == "c":
        same = np.array_equal(ours, cast, equal_nan=True)
    elif ours.dtype.kind in "iub":
        same = np.array_equal(ours, theirs)
    else:
        same = np.array_equal(bits(ours, ours.dtype), bits(cast, ours.dtype))
    return cast_of(ours.dtype, theirs.dtype) if same else ""


def cast_of(ours: np.dtype, theirs: np.dtype) -> str:
    """Return what became of the type of equal numbers: ``bit for bit``, ``cast to float16``."""
    if ours == theirs:
        return "bit for bit"
    return f"widened to {ours}" if common_type(ours, theirs) == theirs else f"cast to {ours}"


def _of_the_same_numbers(ours: np.ndarray, theirs: np.ndarray, kind: np.dtype) -> Related:
    one, other = (each.reshape(each.shape or (1,)) for each in (ours, theirs))
    arrangement = arrange(one, other, kind)
    words = arrangement.words(one.shape, other.shape)
    if arrangement.orders or not arrangement.known:
        # parts of any kind: queries, keys and values as well as heads
        return Related(False, "FILE's in another order", words.replace(" heads of ", " parts of "))
    cast = cast_of(ours.dtype, theirs.dtype)
    return Related(True, state_of(words), "" if cast == "bit for bit" else cast)


def state_of(words: str) -> str:
    """Return the state of numbers that are held in an arrangement, given that in words."""
    return "bit for bit" if words.startswith("equal") else re.split("[,;]", words)[0]


def as_set(array: np.ndarray, kind: np.dtype) -> int:
    """Return the fingerprint of an array's numbers in any order, cast to a type."""
    flat = array.reshape(-1)
    parts = (flat[start : start + SLAB] for start in range(0, flat.size, SLAB))
    return sum(int(mixed(part, kind).sum(dtype=np.uint64)) for part in parts) % 2**64


def _of_other_numbers(ours: np.ndarray, theirs: np.ndarray) -> Related:
    """Say how numbers of one shape differ."""
    for coarse in COARSE if ours.dtype.itemsize > 2 and ours.dtype.kind == "f" else ():
        with np.errstate(all="ignore"):
            rounded = theirs.astype(coarse).astype(ours.dtype)
        if np.array_equal(ours, rounded, equal_nan=True):
            return Related(False, f"FILE's rounded to {coarse}, in {ours.dtype}")
    drawn = looks_drawn(ours)
    error = math.inf if ours.dtype.kind in "iub" else relative_error(ours, theirs)
    if 0 < error < NEAR and not drawn.startswith(ONE_VALUE):
        return Related(False, "near FILE's: trained since, or averaged", f"{error:.1g} off")
    return Related(False, AS_INITIALISED, drawn) if drawn else Related(False, OTHER_NUMBERS)


AS_INITIALISED, OTHER_NUMBERS = "as initialised", "other numbers"
ONE_VALUE = "all "
CUT, LONGER = "cut", "longer than FILE's"


def _of_another_shape(ours: np.ndarray, theirs: np.ndarray) -> Related:
    """Compare tables that may be resized or cut."""
    if ours.ndim and theirs.ndim and ours.shape[1:] == theirs.shape[1:]:
        rows = min(len(ours), len(theirs))
        telling = rows > 1 and not (ours[:rows] == ours[:1]).all()
        if telling and _same(ours[:rows], theirs[:rows]):
            if rows < len(ours):
                return Related(False, LONGER, f"the first {rows} of {len(ours)} rows are")
            return Related(False, CUT, f"the first {rows} of FILE's {len(theirs)} rows")
    if ours.ndim > 1 and theirs.ndim > 1 and ours.shape[-1] == theirs.shape[-1]:
        tables = [each.reshape(-1, each.shape[-1]) for each in (ours, theirs)]
        rule = _resized(*tables)
        if rule:
            return Related(True, "resized", rule)
    drawn = looks_drawn(ours)
    if ours.size == theirs.size:  # in another layout
        return Related(False, AS_INITIALISED, drawn) if drawn else Related(False, OTHER_NUMBERS)
    words = f"{_text(ours.shape)}, FILE's is {_text(theirs.shape)}"
    return Related(False, "of another shape", f"{words}; {AS_INITIALISED}: {drawn}" if drawn else words)


def _resized(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Return the rule by which a table of positions (N, D) is one of another grid; empty if none."""
    if common_type(ours.dtype, theirs.dtype) is None or len(ours) == len(theirs):
        return ""
    limit = 8 * max(float(ml_dtypes.finfo(each.dtype).eps) for each in (ours, theirs))
    for prefix, old, new in _grids(len(theirs), len(ours)):
        if prefix and not _same(ours[:prefix], theirs[:prefix]):
            continue
        for rule in RESAMPLED:
            made = resample_rows(theirs.astype(np.float64), old, new, rule, prefix)
            if relative_error(ours[prefix:].astype(np.float64), made[prefix:]) < max(limit, 1e-5):
                return f"{rule} from {_text(old)} to {_text(new)}"
    return ""


def _grids(old: int, new: int) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """Yield the numbers of prefix tokens, and square grids, that two lengths may have; then others."""
    for prefix in range(MOST_PREFIX + 1):
        sides = [math.isqrt(max(0, length - prefix)) for length in (old, new)]
        if sides[0] > 1 and sides[1] > 1 and sides[0] ** 2 == old - prefix:
            for height in range(1, new - prefix + 1):
                if (new - prefix) % height == 0:
                    yield prefix, (sides[0], sides[0]), (height, (new - prefix) // height)


def looks_drawn(array: np.ndarray) -> str:
    """Return how numbers are distributed that look as an initialiser draws them; else an empty text.

    Drawn are all zeros, all ones, or numbers of one distribution that is normal, normal within two
    deviations, or uniform, in which all rows and all columns have the same spread.
    """
    if array.dtype.kind in "iubc" or not array.size:
        return f"{ONE_VALUE}0" if array.size and not array.any() else ""
    rows = max(1, MOST_DRAWN // max(1, array[:1].size)) if array.ndim else 1
    values = (array[:rows] if array.ndim else array).astype(np.float64)
    flat = values.reshape(-1)
    if not np.isfinite(flat).all():
        return ""
    if (flat == flat[0]).all() and (flat.size > 1 or flat[0] in (0, 1)):
        return f"{ONE_VALUE}{flat[0]:g}"
    if flat.size < LEAST_DRAWN or not _alike(values):
        return ""
    std, most = float(flat.std()), float(np.abs(flat).max())
    some = np.sort(np.random.default_rng(0).choice(flat, min(flat.size, 2**13)))
    # of a normal distribution that is cut at two deviations, the deviation that is left is 0.8796
    uncut = std / 0.87962566
    edge = float(_normal(np.array(-2.0)))
    fits = {
        f"uniform within {most:.2g}": np.clip((some / most + 1) / 2, 0, 1),
        f"normal, deviation {std:.2g}": _normal(some / std),
        f"normal, cut, deviation {std:.2g}": np.clip(
            (_normal(some / uncut) - edge) / (1 - 2 * edge), 0, 1
        ),
    }
    ranks = (np.arange(some.size) + 0.5) / some.size
    distance, name = min((float(np.abs(fit - ranks).max()), name) for name, fit in fits.items())
    return name if distance < UNLIKELY / math.sqrt(some.size) else ""


_PLACES = np.linspace(-6, 6, 2401)
_SHARES = np.array([0.5 * (1 + math.erf(place / math.sqrt(2))) for place in _PLACES])


def _normal(values: np.ndarray) -> np.ndarray:
    """Return the shares of a normal distribution below values, to five digits."""
    return np.interp(values, _PLACES, _SHARES)


UNLIKELY = 2.2
"""Bound of the test of Kolmogorov and Smirnov; one draw of ten thousand exceeds it."""
LEAST_DRAWN = 64
"""Fewest numbers whose distribution is looked at."""
MOST_DRAWN = 2**21
"""Most of them: of a larger tensor, its first rows."""


def _alike(values: np.ndarray) -> bool:
    """Return whether all rows, and all columns, of a matrix have the same spread, up to chance."""
    squares = values.reshape(len(values), -1) ** 2 if values.ndim > 1 else None
    if squares is None or min(squares.shape) < 4:
        return True
    variance = float(squares.var())
    for axis in (0, 1):
        expected = variance / squares.shape[axis]
        count = squares.shape[1 - axis]
        if float(squares.mean(axis).var()) > expected * (1 + 6 / math.sqrt(count)):
            return False
    return True


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
