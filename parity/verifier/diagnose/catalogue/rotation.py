"""Rotary positions within attention: which pairs are turned, which way, and of which tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Option, Values
from parity.verifier.diagnose.catalogue.heads import rotated
from parity.verifier.diagnose.segment import Segment

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


_TURNED = {
    "prefix tokens turned too, as the first patches are": lambda p, n: [*range(p), *range(n)],
    "prefix tokens turned too, as the first patch is": lambda p, n: [*[0] * p, *range(n)],
    "prefix tokens turned too, as the last patches are": lambda p, n: [*range(n - p, n), *range(n)],
    "the first tokens turned in place of the patches": lambda p, n: [*range(n), *[-1] * p],
    "every token turned, the last ones as the first patches": lambda p, n: [*range(n), *range(p)],
}
"""For p tokens before n patches: the row of the table by which each token is turned, -1 for none."""


@dataclass(frozen=True)
class Rotations:
    """The sines and cosines a segment was given, (1 or B, 1 or h, N, d / 2), for the last N tokens."""

    sin: np.ndarray
    cos: np.ndarray
    half: bool
    """Whether halves, not neighbours, are the ordinary pairs."""
    tokens: int = 0
    """T, with those that the table has no rows for."""

    def aspects(self) -> tuple[Aspect, Aspect]:
        """In which ways q and k may be turned by them, and which of their tokens."""
        options = [Option(label, way) for label, way in _WAYS.items()]
        ordinary = options[1] if self.half else options[0]
        ways = (ordinary, *(o for o in options if o is not ordinary))
        return (
            Aspect("rotation", "rotary-kind", ways),
            Aspect("turned", "rotary-prefix", tuple(self._turned_tokens())),
        )

    def _turned_tokens(self) -> Iterator[Option]:
        N = self.sin.shape[2]
        P = self.tokens - N
        still = (self.sin[:, :, 0] == 0.0).all() and (self.cos[:, :, 0] == 1.0).all()
        if P <= 0 and not still:
            code = "rotate(q) and rotate(k), every token"
            yield Option("every token turned", None, torch=code, jax=code)
            return
        # a table may have rows for the prefix that turn by nothing: the same, told by its first row
        said = P or "P"
        yield Option(
            "prefix tokens not turned",
            None,
            torch=f"torch.cat([q[..., :{said}, :], rotate(q[..., {said}:, :])], dim=-2), and k likewise",
            jax=f"jnp.concatenate([q[:, :{said}], rotate(q[:, {said}:])], axis=1), and k likewise",
        )
        if 0 < P <= N:
            yield from (Option(label, rows(P, N)) for label, rows in _TURNED.items())

    def turn(self, q: np.ndarray, k: np.ndarray, v: Values) -> tuple[np.ndarray, np.ndarray] | None:
        """Queries and keys, turned."""
        turned = self._turned(q, v)
        other = self._turned(k, v) if "k" in v["rotation"][2] else k
        return None if turned is None or other is None else (turned, other)

    def turn_values(self, values: np.ndarray, v: Values) -> np.ndarray:
        """Values, turned if they are."""
        found = self._turned(values, v) if "v" in v["rotation"][2] else values
        return values if found is None else found

    def _turned(self, x: np.ndarray, v: Values) -> np.ndarray | None:
        pairs, direction, _ = v["rotation"]
        if not direction:
            return x
        fits = self.sin.shape[1] in (1, x.shape[1]) and self.sin.shape[2] <= x.shape[2]
        if not fits or x.shape[-1] % 2:
            return None
        sin, cos = self.sin, self.cos
        if v["turned"] is not None:
            rows = np.array(v["turned"])
            none = (rows < 0)[:, None]
            sin, cos = np.where(none, 0.0, sin[:, :, rows]), np.where(none, 1.0, cos[:, :, rows])
        return rotated(x, sin, cos, (pairs, direction))


def rotations(segment: Segment, tokens: int) -> Rotations | None:
    """The rotation a segment was given: by the names ``sin`` and ``cos``, as both in one tensor, or by
    the squares of two tensors that sum to one."""
    found = _named(segment) or _unnamed(segment)
    return None if found is None else replace(found, tokens=tokens)


def _unnamed(segment: Segment) -> Rotations | None:
    """Two arguments without names, of which the cosines are larger: angles are small where waves are
    long."""
    given = [x for name, x in segment.before.items() if name.startswith("in[") and x.ndim in (2, 3, 4)]
    for x, y in combinations(given, 2):
        if x.shape == y.shape and x.size and np.abs(x**2 + y**2 - 1.0).max() < 1e-5:
            sin, cos = sorted((x, y), key=lambda each: float(each.mean()))
            return _from(sin, cos, segment.fact("pairs") == "half")
    return None


def _named(segment: Segment) -> Rotations | None:
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
