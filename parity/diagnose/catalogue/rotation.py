"""Rotary positions within attention: which pairs are turned, which way, and of which tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from parity.diagnose.catalogue.computation import Aspect, Option
from parity.diagnose.catalogue.heads import rotated
from parity.diagnose.segment import Segment

Way = tuple[str, int, str]
"""Pairs (``interleaved`` or ``half``); direction (1, -1, 0: none); of which: ``qk``, ``q``, ``qkv``."""

_WAYS = {
    "neighbouring channels turned": ("interleaved", 1, "qk"),
    "channels turned in halves": ("half", 1, "qk"),
    "neighbouring channels turned backwards": ("interleaved", -1, "qk"),
    "channels turned in halves, backwards": ("half", -1, "qk"),
    "nothing turned": ("half", 0, "qk"),
    "queries alone turned, neighbouring channels": ("interleaved", 1, "q"),
    "queries alone turned, in halves": ("half", 1, "q"),
    "values turned too, neighbouring channels": ("interleaved", 1, "qkv"),
    "values turned too, in halves": ("half", 1, "qkv"),
}


@dataclass(frozen=True)
class Rotations:
    """The sines and cosines a segment was given, (1 or B, 1 or h, T, d / 2)."""

    sin: np.ndarray
    cos: np.ndarray
    half: bool
    """Whether halves, not neighbours, are the ordinary pairs."""

    def aspect(self) -> Aspect:
        """In which ways q and k may be turned by them."""
        options = [Option(label, way) for label, way in _WAYS.items()]
        ordinary = options[1] if self.half else options[0]
        return Aspect("rotation", "rotary-kind", (ordinary, *(o for o in options if o is not ordinary)))

    def turn(self, q: np.ndarray, k: np.ndarray, way: Way) -> tuple[np.ndarray, np.ndarray] | None:
        """Queries and keys, turned."""
        turned = self._turned(q, way)
        other = self._turned(k, way) if "k" in way[2] else k
        return None if turned is None or other is None else (turned, other)

    def turn_values(self, values: np.ndarray, way: Way) -> np.ndarray:
        """Values, turned if they are."""
        found = self._turned(values, way) if "v" in way[2] else values
        return values if found is None else found

    def _turned(self, x: np.ndarray, way: Way) -> np.ndarray | None:
        pairs, direction, _ = way
        if not direction:
            return x
        fits = self.sin.shape[1] in (1, x.shape[1]) and self.sin.shape[2] <= x.shape[2]
        return (
            rotated(x, self.sin, self.cos, (pairs, direction)) if fits and x.shape[-1] % 2 == 0 else None
        )


def rotations(segment: Segment) -> Rotations | None:
    """The rotation a segment was given, by the names ``sin`` and ``cos`` or as both in one tensor."""
    named = {
        part: x
        for name, x in segment.before.items()
        for part in ("sin", "cos")
        if re.search(rf"(^|[._]){part}", name)
    }
    half = segment.fact("pairs") == "half"
    if len(named) == 2:
        return _from(named["sin"], named["cos"], half)
    for name, x in segment.before.items():
        if re.search(r"in\.(rope|rotary)", name) and x.ndim in (2, 3, 4) and x.shape[-1] % 2 == 0:
            sin, cos = np.split(x, 2, axis=-1)
            return _from(sin, cos, half)
        if re.search(r"in\.(position_embeddings|rotary\w*)\[0\]", name):  # the cosine first
            other = segment.before.get(name.replace("[0]", "[1]"))
            return None if other is None else _from(other, x, half)
    return None


def _from(sin: np.ndarray, cos: np.ndarray, half: bool) -> Rotations:
    sin, cos = (_four(x) for x in (sin, cos))
    width = sin.shape[-1]
    if width % 2 == 0 and np.array_equal(sin[..., ::2], sin[..., 1::2]):  # written twice, side by side
        return Rotations(sin[..., ::2], cos[..., ::2], False)
    if width % 2 == 0 and np.array_equal(sin[..., : width // 2], sin[..., width // 2 :]):
        return Rotations(sin[..., : width // 2], cos[..., : width // 2], True)
    return Rotations(sin, cos, half)


def _four(x: np.ndarray) -> np.ndarray:
    """(T, d) or (h, T, d) or (B, T, h, d) to (B, h, T, d)."""
    if x.ndim == 4:
        return x.transpose(0, 2, 1, 3)
    return x.reshape((1,) * (4 - x.ndim) + x.shape)
