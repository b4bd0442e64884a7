"""Where queries, keys and values come from: which tensors of a segment hold them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.verifier.diagnose.catalogue import heads as parts
from parity.verifier.diagnose.catalogue.computation import Aspect, Option, Values
from parity.verifier.diagnose.segment import Segment

_COUNTS = 6  # numbers of heads that are tried besides the one that is stated
NAMES = {
    "q": r"(^|[._])(q|query|to_q|q_proj|wq|linear_q|q_lin)([._ ]|$)",
    "k": r"(^|[._])(k|key|to_k|k_proj|wk|linear_k|k_lin)([._ ]|$)",
    "v": r"(^|[._])(v|value|to_v|v_proj|wv|linear_v|v_lin)([._ ]|$)",
}
NORMS = {
    "q": r"(^|[._])(q|query)_?(norm|ln|layernorm)|norm_q",
    "k": r"(^|[._])(k|key)_?(norm|ln|layernorm)|norm_k",
}


@dataclass(frozen=True)
class Projections:
    """The tensors that hold q, k and v."""

    tokens: int
    width: int
    """Of all heads' values together."""
    heads: int | None
    """As the facts or the shapes say."""
    packed: np.ndarray | None
    """(B, T, 3 width), or narrower by the keys and values that heads share."""
    apart: tuple[np.ndarray, ...]
    """q, k, v (B, T, width) each."""
    normed: tuple[np.ndarray, ...]
    """q and k after their norms, (B, T, h, d) or (B, h, T, d)."""

    def aspects(self) -> Iterator[Aspect]:
        """What is open about them."""
        yield Aspect("heads", "attention-heads", self._head_options())
        if self.packed is not None and self.packed.shape[-1] == 3 * self.width:
            yield Aspect("packing", "qkv-packing", parts.packings())
        elif self.apart and self.apart[0].ndim == 3:
            yield Aspect("packing", "qkv-packing", _SPLITS)
        yield Aspect("order", "qkv-order", parts.ORDERS)

    def _head_options(self) -> tuple[Option, ...]:
        count = self.heads
        counts = [] if count is None else [count]
        if not self.normed and not (self.apart and self.apart[0].ndim == 4):
            grouped = self.packed is not None and self.packed.shape[-1] != 3 * self.width
            others = [h for h in range(1, min(self.width, 64) + 1) if self.width % h == 0]
            said = 64 if count is None else self.width // count
            usual = sorted(others, key=lambda h: abs(math.log(self.width / h / said)))
            counts += [] if grouped and counts else [h for h in usual if h not in counts][:_COUNTS]
        return tuple(
            Option(f"{h} heads of {self.width // h}", h, torch=f"num_heads={h}", jax=f"num_heads={h}")
            for h in counts
        )

    def cut(self, v: Values) -> list[np.ndarray] | None:
        """q, k and v, (B, h, T, d) each, under a choice; keys and values maybe of fewer heads."""
        h = v["heads"]
        found: list[np.ndarray] | None = None
        if self.packed is not None:
            if self.packed.shape[-1] == 3 * self.width:
                found = parts.unpack(self.packed, h, v["packing"])
            else:
                groups = (self.packed.shape[-1] - self.width) * h // (2 * self.width)
                found = (
                    parts.unpack_grouped(self.packed, h, groups) if groups and h % groups == 0 else None
                )
        elif self.apart:
            found = [self._heads_first(x, h, v.get("packing", "hd")) for x in self.apart]
        if found is None or len(found) != 3:
            return None
        if self.normed:
            found = [*(self._heads_first(x, h, "hd") for x in self.normed), found[2]]
        # in one piece: products of matrices with other strides do not go through BLAS
        return [np.ascontiguousarray(found[i]) for i in v["order"]]

    def _heads_first(self, x: np.ndarray, heads: int, axes: str) -> np.ndarray:
        if x.ndim == 3:
            d = self.width // heads
            return parts.split(x, x.shape[-1] // d, axes)
        return x if x.shape[2] == self.tokens and x.shape[1] != self.tokens else x.transpose(0, 2, 1, 3)


_SPLITS = (
    Option("channels as (h, d)", "hd", torch="x.reshape(B, N, h, d)", jax="x.reshape(B, N, h, d)"),
    Option("channels as (d, h)", "dh"),
)


def find(segment: Segment, width: int | None) -> Projections | None:
    """The projections of a segment whose heads' values together have `width` channels, if known."""
    tensors = {name: x for name, x in segment.before.items() if x.ndim in (3, 4) and name != "in"}
    heads = segment.fact(
        "num_heads", "heads", "num_attention_heads", "n_heads", "nheads", "nhead", "n_head"
    )
    heads = heads if isinstance(heads, int) and heads > 0 else None
    normed = _all_named(tensors, NORMS, 4)
    apart = _all_named(tensors, NAMES)
    packed = _packed(segment, tensors, width)
    if len(apart) != 3 and packed is None:
        apart = _alike(tensors)
    if len(apart) == 3 and apart[0].ndim == 3 and apart[0].shape[1] != apart[1].shape[1]:
        return None  # queries of other tokens than the keys: no self-attention
    if len(apart) == 3:
        packed = None
        tokens = segment.before["in"].shape[1] if "in" in segment.before else apart[0].shape[1]
        if apart[0].ndim == 4:
            heads = apart[0].shape[2] if apart[0].shape[1] == tokens else apart[0].shape[1]
        channels = int(apart[0][0].size // tokens)
    elif packed is not None:
        apart, tokens = (), packed.shape[1]
        channels = width or _width(segment, packed.shape[-1], heads)
    else:
        return None
    if heads is None and normed:
        heads = normed[0].shape[2] if normed[0].shape[1] == tokens else normed[0].shape[1]
    if heads is not None and channels % heads:
        heads = None
    return Projections(tokens, channels, heads, packed, apart, normed if len(normed) == 2 else ())


def _width(segment: Segment, packed: int, heads: int | None) -> int:
    """Of all heads' queries, in a projection that holds q, k and v, of which heads may share k and v."""
    shared = segment.fact("num_kv_heads", "num_key_value_heads", "kv_heads")
    if heads and isinstance(shared, int) and shared > 0 and packed % (heads + 2 * shared) == 0:
        return packed // (heads + 2 * shared) * heads
    return packed // 3


def _all_named(
    tensors: dict[str, np.ndarray], patterns: dict[str, str], ndim: int | None = None
) -> tuple[np.ndarray, ...]:
    found = (named(tensors, pattern, ndim) for pattern in patterns.values())
    return tuple(x for x in found if x is not None)


def named(tensors: dict[str, np.ndarray], pattern: str, ndim: int | None = None) -> np.ndarray | None:
    """The first tensor with such a name, of so many axes if that is said, else not behind a norm."""
    for name, x in tensors.items():
        if re.search(pattern, name) and not ("norm" in name and ndim is None) and ndim in (None, x.ndim):
            return x
    return None


def _packed(segment: Segment, tensors: dict[str, np.ndarray], width: int | None) -> np.ndarray | None:
    for name, x in tensors.items():
        if x.ndim == 3 and (
            re.search("qkv|in_proj|query_key", name) or (width and x.shape[-1] == 3 * width)
        ):
            return _biased(segment, x)
    return None


def _biased(segment: Segment, x: np.ndarray) -> np.ndarray:
    """With the biases of q and v that some models keep apart from the projection."""
    q, v = (segment.parameters.get(name) for name in ("q_bias", "v_bias"))
    if q is None or v is None:
        return x
    between = np.zeros(x.shape[-1] - q.size - v.size)
    return x + np.concatenate([q.reshape(-1), between, v.reshape(-1)])


def _alike(tensors: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Three tensors of one shape, in the order in which they were made."""
    shapes = [x.shape for x in tensors.values()]
    for shape in dict.fromkeys(shapes):
        if shapes.count(shape) == 3:
            return tuple(x for x in tensors.values() if x.shape == shape)
    return ()
