"""A norm that two models call at different places, told by the order in which they call modules."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from parity.verifier.diagnose.segment import Segment

_NORM = r"norm|(^|[._])ln"
_ALIKE = 1e-3  # of its norm: two tensors nearer than that are the same, seen in two programs
_TOLD = {"missing-branch", "missing-residual", "missing-norm", "wrong-input"}
"""What else a norm at another place looks like: a tensor too many, too few, or another one."""


class NormPlace(NamedTuple):
    """Where the two sides have the norm, in words, and the line to change."""

    a: str
    b: str
    advice: str


def norm_place(a: Segment, b: Segment, slugs: list[str]) -> NormPlace | None:
    """Where a norm is called in A and in B, if that it is called elsewhere explains what differs.

    Args:
        slugs: the causes by which both sides have been reproduced.
    """
    if len(slugs) != 1 or slugs[0] not in _TOLD:
        return None
    target = a.target.partition(" in")[0]
    if target == a.target:
        return None
    norms = _norms(a, b)
    if target in norms:
        other = _crossed(a, b, target)
        return None if other is None else _said(target, other, _before(b, target, other))
    for first, second in ((a, b), (b, a)):
        norm = _skipped(first, second, target, norms)
        if norm is not None:
            return _said(norm, target, first is b)
    return None


def _said(norm: str, other: str, before_in_b: bool) -> NormPlace:
    behind, before = f"{norm} after {other}", f"{norm} before {other}"
    mine, theirs = (behind, before) if before_in_b else (before, behind)
    return NormPlace(mine, theirs, f"B: call {mine}")


def _norms(a: Segment, b: Segment) -> set[str]:
    """The modules that are norms, by their own names and as `Segment.called` has them."""
    kinds = {**b.children, **a.children}  # what B calls has A's name where it has a partner of its kind

    def said(path: str) -> str:
        plain = path.removesuffix(" (again)")
        return f"{plain} {kinds[plain].name if plain in kinds else ''}".lower()

    return {path for path in (*kinds, *a.called, *b.called) if re.search(_NORM, said(path))}


def _before(segment: Segment, path: str, other: str) -> bool:
    return segment.called.index(path) < segment.called.index(other)


def _crossed(a: Segment, b: Segment, norm: str) -> str | None:
    """What one side calls before the norm and the other behind it."""
    if norm not in a.called or norm not in b.called:
        return None
    shared = [path for path in a.called if path != norm and path in b.called]
    return next((path for path in shared if _before(a, norm, path) != _before(b, norm, path)), None)


def _skipped(first: Segment, second: Segment, target: str, norms: set[str]) -> str | None:
    """The norm whose output `first` gives to a module, and which `second` calls only behind that module.

    `second` gives the module what the norm was given in `first`.
    """
    if target not in first.called or target not in second.called:
        return None
    for name, array in first.before.items():
        norm = name.partition(" out")[0]
        given = first.given.get(f"{norm} in")
        if given is None or norm not in norms or not _same(array, first.result):
            continue
        later = _count_behind(second, target, norms) > _count_behind(first, target, norms)
        if later and _same(given, second.result):
            return norm
    return None


def _count_behind(segment: Segment, target: str, norms: set[str]) -> int:
    """How many norms are called after a module: which of them is which may be unknown."""
    return len(norms.intersection(segment.called[segment.called.index(target) + 1 :]))


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    return x.shape == y.shape and float(np.linalg.norm(x - y)) <= _ALIKE * float(np.linalg.norm(y))
