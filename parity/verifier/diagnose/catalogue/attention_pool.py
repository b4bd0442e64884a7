"""Attention pooling: few queries of its own attend to the tokens (MAP, arXiv 2106.04560)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.verifier.diagnose.catalogue import heads as parts
from parity.verifier.diagnose.catalogue.attention import AXES, SCALES
from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.linear import PRODUCTS
from parity.verifier.diagnose.catalogue.numerics import sigmoid, softmax
from parity.verifier.diagnose.catalogue.projections import NAMES, NORMS, named
from parity.verifier.diagnose.segment import Segment

_BOTH = r"(^|[._])(kv|to_kv|kv_proj|key_value|wkv)([._ ]|$)"
_MOST_PREFIX = 6
_PACKINGS = (
    Option("packed as (2, h, d)", "shd", torch="kv.reshape(B, N, 2, h, d)"),
    Option("packed as (h, 2, d)", "hsd"),
    Option("packed as (h, d, 2)", "hds"),
)
_ORDERS = (
    Option("k, v", False, torch="k, v = kv.unbind(2)", jax="k, v = kv[:, :, 0], kv[:, :, 1]"),
    Option("v, k", True),
)


def computations(segment: Segment) -> Iterator[Computation]:
    """softmax(scale * q k^T) v of L queries and N keys: (B, L, D), (B, D), or heads apart."""
    found = _find(segment)
    if found is not None and len(found.heads):
        yield Computation("attention pooling", found.aspects(), found.compute)


@dataclass(frozen=True)
class _Pool:
    segment: Segment
    query: np.ndarray
    """(1 or B, L, D)."""
    keys: tuple[np.ndarray, ...]
    """k and v, (B, N, D) each; or both in one, (B, N, 2 D)."""
    normed: np.ndarray | None
    """The keys behind their norm, (B, N, D)."""
    heads: tuple[int, ...]
    """How many there may be, the stated number first."""
    seen: tuple[Option, ...]
    """How many tokens in front are not attended to."""

    def aspects(self) -> tuple[Aspect, ...]:
        """The independent choices."""
        D = self.query.shape[-1]
        heads = (
            Option(f"{h} heads of {D // h}", h, torch=f"num_heads={h}", jax=f"num_heads={h}")
            for h in self.heads
        )
        return (
            Aspect("seen", "pooling-prefix", self.seen),
            Aspect("heads", "attention-heads", tuple(heads)),
            Aspect("packing", "qkv-packing", _PACKINGS if len(self.keys) == 1 else _PACKINGS[:1]),
            Aspect("order", "qkv-order", _ORDERS),
            Aspect("scale", "attention-scale", SCALES),
            Aspect("axis", "softmax-axis", AXES),
            Aspect("join", "heads-layout", parts.JOINS),
            PRODUCTS,
        )

    def compute(self, v: Values) -> np.ndarray | None:
        """The result under a choice."""
        h, (_, L, D) = v["heads"], self.query.shape
        keys, values = self._cut(h, v["packing"])
        if self.normed is not None:
            keys = parts.split(self.normed, h)
        if v["order"]:
            keys, values = values, keys
        keys, values = keys[:, :, v["seen"] :], values[:, :, v["seen"] :]
        scaled = parts.split(self.query, h) * v["scale"](D // h, D)
        logits = v["product"](scaled) @ v["product"](keys).swapaxes(-1, -2)  # (B, h, L, N)
        if v["axis"] == "sigmoid":
            logits = sigmoid(logits)
        elif v["axis"] is not None:
            logits = softmax(logits, v["axis"])
        y = v["product"](logits) @ v["product"](values)
        shape = self.segment.result.shape
        joined = parts.join(y, v["join"], shape if len(shape) == 4 else (len(y), L, D))
        return None if joined is None else joined.reshape(shape)

    def _cut(self, h: int, packing: str) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values, (B, h, N, d) each."""
        if len(self.keys) == 2:
            return parts.split(self.keys[0], h), parts.split(self.keys[1], h)
        B, N, width = self.keys[0].shape
        sizes = {"s": 2, "h": h, "d": width // (2 * h)}
        x = self.keys[0].reshape(B, N, *(sizes[axis] for axis in packing))
        s, heads, d = (2 + packing.index(axis) for axis in "shd")
        k, v = x.transpose(s, 0, heads, 1, d)
        return k, v


def _find(segment: Segment) -> _Pool | None:
    """Queries and keys by their names; the query may be a parameter."""
    tensors = {n: x for n, x in segment.before.items() if x.ndim in (3, 4) and not n.startswith("in")}
    both = next((n for n in tensors if re.search(_BOTH, n)), None)
    apart = [next((n for n in tensors if tensors[n] is x), "") for x in _keys(tensors)]
    name = both or (apart[0] if len(apart) == 2 else None)
    query = named(tensors, NORMS["q"], 4)
    query = named(tensors, NAMES["q"]) if query is None else query
    query = _latent(segment) if query is None else query
    if name is None or query is None:
        return None
    stated = segment.fact("pool_num_heads", "num_heads", "heads", "num_attention_heads", "n_heads")
    if query.ndim == 4:
        stated = _heads_of(query, tensors[name])
    given = [tensors[name]] if both else [tensors[each] for each in apart]
    normed = named(tensors, NORMS["k"], 4)
    query, *flat = (_flat(x, stated) for x in (query, *given))
    normed = None if normed is None else _flat(normed, stated)
    D, (B, N, width) = query.shape[-1], flat[0].shape
    fits = segment.result.size == B * query.shape[1] * D and width == (2 * D if both else D)
    if query.shape[1] >= N or not fits or len(segment.result) != B:
        return None
    counts = [h for h in range(1, min(D, 64) + 1) if D % h == 0]
    known = isinstance(stated, int) and stated in counts
    usual = (stated,) if known else ()
    heads = (*usual, *(h for h in counts if h not in usual))
    return _Pool(segment, query, tuple(flat), normed, heads, _seen(segment, name, N))


def _keys(tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [x for part in "kv" if (x := named(tensors, NAMES[part])) is not None]


def _latent(segment: Segment) -> np.ndarray | None:
    """A query that is a parameter and not projected: (L, D) or (1, L, D)."""
    rows = [w for w in segment.parameters.values() if w.ndim in (2, 3) and w.size > 1]
    return rows[0].reshape(1, -1, rows[0].shape[-1]) if len(rows) == 1 else None


def _heads_of(query: np.ndarray, keys: np.ndarray) -> int:
    """Of a query (B, L, h, d) or (B, h, L, d), by the axis in which its keys agree with it."""
    return query.shape[1] if keys.ndim == 4 and keys.shape[1] == query.shape[1] else query.shape[2]


def _flat(x: np.ndarray, heads: int | None) -> np.ndarray:
    """(B, N, h, d) or (B, h, N, d) to (B, N, h d)."""
    if x.ndim == 3:
        return x
    x = x if x.shape[2] == heads else x.transpose(0, 2, 1, 3)
    return x.reshape(*x.shape[:2], -1)


def _seen(segment: Segment, name: str, tokens: int) -> tuple[Option, ...]:
    """Which tokens have keys, and that some in front of them are not attended to.

    Two models that attend to as many tokens say the same, wherever they leave the others out.
    """
    whole = segment.before.get("in")
    given = segment.given.get(f"{name.removesuffix(' out')} in")
    total = whole.shape[1] if whole is not None and whole.ndim == 3 else tokens
    last = total
    if whole is not None and given is not None and whole.ndim == given.ndim == 3:
        starts = (s for s in range(total - tokens, -1, -1) if _same(whole[:, s : s + tokens], given))
        last = next(starts, total - tokens) + tokens
    options = []
    for first in range(min(_MOST_PREFIX, tokens - 1) + 1):
        start = last - tokens + first
        where = f"x[:, {start}:]" if last == total != tokens else f"x[:, -{tokens - first}:]"
        if last != total:
            where = f"x[:, {start}:{last}]"
        words = f"the last {tokens - first} tokens" if last == total else f"tokens {start} to {last - 1}"
        code = f"keys and values of {where} alone"
        options.append(Option(f"attention over {words}", first, torch=code, jax=code))
    return tuple(options)


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    return x.shape == y.shape and bool(np.allclose(x, y, rtol=1e-6, atol=0.0))
