"""Sums of tensors with constant factors and gains: residual lines, layer scale, means of heads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np

from parity.measure.tolerance import epsilon
from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.tensors import sources
from parity.verifier.diagnose.segment import Segment

Term = tuple[str, str]
"""A tensor, and the parameters that multiply each channel of it, joined by `` x ``."""
Terms = dict[Term, float]

_TENSORS, _COLUMNS, _LONGEST = 8, 24, 4
_SHORTLIST = 1e-3  # of the result's norm: how far off a sum may be to be tried
_SCALES = r"(^|[._ ])ls\d*\b|layer_?scale|gamma|lambda|scale"


def computations(segment: Segment) -> Iterator[Computation]:
    """The sum of few tensors of the result's shape that comes nearest to it."""
    columns = _columns(segment)
    if not columns or not segment.result.any():
        return
    options = [Option("the residual sum", _ordinary(columns))]
    for terms in _nearest(segment, columns):
        if terms != options[0].value:
            options.append(Option(_label(terms), terms))
    options[0] = Option(_label(options[0].value), options[0].value)

    def compute(v: Values) -> np.ndarray:
        return sum((factor * columns[term] for term, factor in v["sum"].items()), np.zeros(()))

    # the logits of several heads are averaged; nothing else in a model that is one vector per image
    slug = _slug_of_heads if segment.result.ndim == 2 else _slug
    yield Computation("sum", (Aspect("sum", "residual-sum", tuple(options)),), compute, slug=slug)


def _columns(segment: Segment) -> dict[Term, np.ndarray]:
    found: dict[Term, np.ndarray] = {}
    same = [(name, x) for name, x in sources(segment) if x.shape == segment.result.shape]
    if len(same) > _TENSORS:
        same = [*same[: _TENSORS - 1], same[-1]]
    width = segment.result.shape[-1] if segment.result.ndim else 0
    known = {**segment.parameters, **({} if segment.children else segment.beside)}
    gains = {name: w.reshape(-1) for name, w in known.items() if w.size == width > 1}
    own = gains.keys() & segment.parameters.keys()
    for name, x in reversed(same):
        found[name, ""] = x
        for gain, w in gains.items():
            found[name, gain] = x * w
            if own == {gain}:
                found[name, f"{gain} x {gain}"] = x * w * w
    return dict(list(found.items())[:_COLUMNS])


def _ordinary(columns: dict[Term, np.ndarray]) -> Terms:
    """The stream plus the latest branch; or what there is, times the gain."""
    plain = [term for term in columns if not term[1]]
    if len(plain) == 1:
        return {next((term for term in columns if term[1]), plain[0]): 1.0}
    return {plain[0]: 1.0, plain[-1]: 1.0}


def _nearest(segment: Segment, columns: dict[Term, np.ndarray]) -> Iterator[Terms]:
    """Sums by least squares, the shortest first, of each length the nearest."""
    names = list(columns)
    matrix = np.stack([x.reshape(-1) for x in columns.values()])  # (columns, values)
    size = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix, names = (
        matrix[size[:, 0] > 0] / size[size[:, 0] > 0],
        [n for n, s in zip(names, size, strict=True) if s > 0],
    )
    size, y = size[size > 0], segment.result.reshape(-1)
    gram, image, square = matrix @ matrix.T, matrix @ y, float(y @ y)
    for length in range(1, min(_LONGEST, len(names), y.size // 8) + 1):
        ranked = []
        for chosen in combinations(range(len(names)), length):
            part = gram[np.ix_(chosen, chosen)]
            if np.linalg.cond(part) > 1e10:
                continue  # two of them are the same up to a factor: a shorter sum says as much
            factors = np.linalg.solve(part, image[list(chosen)])
            ranked.append((max(0.0, square - float(factors @ image[list(chosen)])), chosen))
        for rest, chosen in sorted(ranked)[:3]:
            if rest > _SHORTLIST**2 * square:
                break
            exact = np.linalg.lstsq(matrix[list(chosen)].T, y)[0] / size[list(chosen)]
            tolerance = 64 * epsilon(segment.dtype)
            if (np.abs(exact) * size[list(chosen)] <= tolerance * math.sqrt(square)).any():
                continue  # a term of no size: a shorter sum says as much
            yield {names[i]: _nice(float(f), tolerance) for i, f in zip(chosen, exact, strict=True)}


def _nice(factor: float, tolerance: float) -> float:
    """The simple fraction that it is, to rounding."""
    near = float(Fraction(factor).limit_denominator(24)) if np.isfinite(factor) else factor
    return near if near and abs(near - factor) <= tolerance * max(abs(factor), 1e-3) else factor


def _label(terms: Terms) -> str:
    words = []
    if _is_mean(terms) and len(terms) > 1:
        return f"({' + '.join(name for name, _ in terms)}) / {len(terms)}"
    for (name, gain), factor in terms.items():
        scaled = "" if factor == 1.0 else f"{factor:.6g} x "
        words.append(f"{scaled}{name}{f' x {gain}' if gain else ''}")
    return " + ".join(words)


def _is_mean(terms: Terms) -> bool:
    return all(factor == 1 / len(terms) and not gain for (_, gain), factor in terms.items())


def _slug_of_heads(a: Values, b: Values) -> str:
    """Means of which one has tensors that the other lacks; else as `_slug`."""
    mine, theirs = a["sum"], b["sum"]
    nested = mine.keys() < theirs.keys() or theirs.keys() < mine.keys()
    return "missing-head" if nested and _is_mean(mine) and _is_mean(theirs) else _slug(a, b)


def _slug(a: Values, b: Values) -> str:
    mine, theirs = a["sum"], b["sum"]
    if mine.keys() == theirs.keys():
        ratios = {
            max(mine[t], theirs[t]) / min(mine[t], theirs[t]) for t in mine if mine[t] != theirs[t]
        }
        return "branch-twice" if ratios == {2.0} and len(mine) > 1 else "branch-scale"
    only = [t for t in mine if t not in theirs], [t for t in theirs if t not in mine]
    tensors = {name for part in only for name, _ in part}
    gains = {gain for part in only for _, gain in part if gain}
    if gains or (all(only) and any(re.search(_SCALES, name) for name in tensors)):
        return "layer-scale"
    if all(only) and len(mine) > 1 and any(re.match(r"in\b", name) for name in tensors):
        return "wrong-residual"
    if all(only):
        return "missing-norm" if any("norm" in name for name in tensors) else "wrong-input"
    return "missing-residual" if any(re.match(r"in\b", name) for name in tensors) else "missing-branch"
