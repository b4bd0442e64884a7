"""The parts of attention: cutting into heads, rotating, joining."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Option

PACKINGS: dict[str, tuple[str, str]] = {
    "(3, h, d)": ("shd", "s"),
    "(h, 3, d)": ("hsd", "s"),
    "(h, d, 3)": ("hds", "s"),
    "(3, d, h)": ("sdh", "s"),
    "(d, h, 3)": ("dhs", "s"),
    "(d, 3, h)": ("dsh", "s"),
}


def packings() -> tuple[Option, ...]:
    """Ways in which q, k, v and heads lie in one projection; the value is the order of its axes.

    Where q, k and v lie one after the other, it is called as it is where they are projected apart.
    """
    return tuple(
        Option(
            f"channels as ({name[4:]}" if name.startswith("(3, ") else f"packed as {name}",
            axes,
            torch=f"qkv.reshape(B, N, {name[1:-1]})",
            jax=f"qkv.reshape(B, N, {name[1:-1]})",
        )
        for name, (axes, _) in PACKINGS.items()
    )


ORDERS = tuple(
    Option(
        ", ".join(names),
        tuple(names.index(part) for part in "qkv"),
        torch=f"{', '.join(names)} = qkv.unbind(...)",
        jax=f"{', '.join(names)} = jnp.split(qkv, 3, ...)",
    )
    for names in permutations("qkv")
)
"""Which of the three projections is which; the value says where q, k and v are."""


def unpack(x: np.ndarray, heads: int, axes: str) -> list[np.ndarray] | None:
    """(B, T, 3 h d) to three arrays (B, h, T, d)."""
    width = x.shape[-1] // 3
    if x.shape[-1] % 3 or width % heads:
        return None
    sizes = {"s": 3, "h": heads, "d": width // heads}
    parts = x.reshape(*x.shape[:2], *(sizes[axis] for axis in axes))
    where = {axis: 2 + i for i, axis in enumerate(axes)}
    return list(parts.transpose(where["s"], 0, where["h"], 1, where["d"]))


def unpack_grouped(x: np.ndarray, heads: int, groups: int) -> list[np.ndarray] | None:
    """(B, T, (h + 2 kv) d) to q (B, h, T, d) and k, v (B, kv, T, d); None if the heads do not fit."""
    if x.shape[-1] % (heads + 2 * groups):
        return None
    d = x.shape[-1] // (heads + 2 * groups)
    parts = np.split(x, [heads * d, (heads + groups) * d], axis=-1)
    return [split(part, count, "hd") for part, count in zip(parts, (heads, groups, groups), strict=True)]


def split(x: np.ndarray, heads: int, axes: str = "hd") -> np.ndarray:
    """(B, T, h d) to (B, h, T, d), the channels laid out as `axes`."""
    B, T, width = x.shape
    if axes == "hd":
        return x.reshape(B, T, heads, width // heads).transpose(0, 2, 1, 3)
    return x.reshape(B, T, width // heads, heads).transpose(0, 3, 1, 2)


def repeated(x: np.ndarray, heads: int) -> np.ndarray:
    """(B, kv, T, d) to (B, h, T, d), each head for a group of neighbours."""
    return x if x.shape[1] == heads else np.repeat(x, heads // x.shape[1], axis=1)


JOINS = (
    Option("heads joined as (h, d)", "hd", torch="y.transpose(1, 2).reshape(B, N, h * d)"),
    Option("heads joined as (d, h)", "dh"),
    Option("heads not moved back before joining", "raw", torch="y.transpose(1, 2).reshape(B, N, h * d)"),
)


def join(y: np.ndarray, how: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """(B, h, T, d) to (B, T, h d), or to an array of heads of the given shape."""
    B, h, T, d = y.shape
    if len(shape) == 4:
        if how != "hd":
            return None
        return y if shape == y.shape else y.transpose(0, 2, 1, 3)
    if how == "raw":
        return y.reshape(B, T, h * d)
    axes = (0, 2, 1, 3) if how == "hd" else (0, 2, 3, 1)
    return y.transpose(axes).reshape(B, T, h * d)


def rotated(x: np.ndarray, sin: np.ndarray, cos: np.ndarray, how: tuple[str, int]) -> np.ndarray | None:
    """Turn the pairs of the last tokens of (B, h, T, d) (arXiv 2104.09864, equation 15).

    Args:
        sin, cos: broadcastable to (B, h, T - P, d / 2).
        how: ``interleaved`` or ``half``, and the direction: 1, or -1.
    """
    pairs, direction = how
    prefix, x = np.split(x, [x.shape[2] - sin.shape[2]], axis=2)
    if pairs == "half":
        a, b = np.split(x, 2, axis=-1)
    else:
        a, b = x[..., ::2], x[..., 1::2]
    if sin.shape[-1] != a.shape[-1]:
        return None
    sin = direction * sin
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = np.concatenate([a, b], -1) if pairs == "half" else np.stack([a, b], -1).reshape(x.shape)
    return np.concatenate([prefix, turned], axis=2)
