"""Examples of causes as sides of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from parity.verifier.causes.cause import Cause

SHAPES = {"w": (6, 6), "v": (6, 6), "b": (6,), "g": (6,), "k": (4, 5, 3)}
"""Parameters that an example may use, with their shapes. Its input is `x`, of shape [2, 5, 6]."""
SIZE = 2, 5, 6


def sides(cause: Cause) -> tuple[tuple[Callable[..., Any], Any], tuple[Callable[..., Any], Any]]:
    """Return both sides of a cause's example; needs JAX."""
    return _side(cause.a), _side(cause.b)


def _side(expression: str) -> tuple[Callable[..., Any], Any]:
    rng = np.random.default_rng(3)
    parameters = {name: rng.normal(size=shape) * 0.5 for name, shape in SHAPES.items()}
    parameters["g"] += 1
    code, names = compile(expression, "<example>", "eval"), _names()

    def function(p: dict[str, Any], x: Any) -> Any:
        return eval(code, names | {"x": x, **p})  # the expressions are this package's own

    return function, (parameters, rng.normal(size=SIZE))


def _names() -> dict[str, Any]:
    """Return what an expression may use besides its parameters and its input."""
    import jax
    import jax.numpy as jnp
    from jax import lax, nn
    from jax.sharding import AbstractMesh, PartitionSpec

    def norm(x: Any, gain: Any, bias: Any) -> Any:
        return nn.standardize(x, epsilon=1e-6) * gain + bias

    def unit(x: Any) -> Any:
        """Channels of length one, of which cosines are products."""
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def grouped(x: Any, groups: int) -> Any:
        """Normalise the channels of all tokens in groups."""
        parts = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
        return nn.standardize(parts, (1, 3), epsilon=1e-6).reshape(x.shape)

    def averaged(x: Any, size: int, stride: int, padding: Any, *, counted: bool = True) -> Any:
        """Average pooling of tokens."""
        how = (1, size, 1), (1, stride, 1), [(0, 0), padding, (0, 0)]
        counts = lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, *how)
        return lax.reduce_window(x, 0.0, lax.add, *how) / (size if counted else counts)

    def turned_neighbours(x: Any) -> Any:
        """Rotary positions of channels 0 and 1, 2 and 3, ..."""
        even, odd = x[..., ::2], x[..., 1::2]
        return jnp.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(x.shape)

    def turned_halves(x: Any) -> Any:
        """Rotary positions of channels 0 and n / 2, 1 and n / 2 + 1, ..."""
        first, second = jnp.split(x, 2, -1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def descent(loss: Any, **parameters: Any) -> Any:
        """One step of gradient descent."""
        return jax.tree.map(lambda p, d: p - 0.1 * d, parameters, jax.grad(loss)(parameters))

    def rounded(x: Any) -> Any:
        """Round to the 8 bits of bfloat16 by Veltkamp's splitting, which is plain arithmetic."""
        scaled = x * (2.0 ** (53 - 8) + 1)
        return scaled - (scaled - x)

    over = partial(jax.shard_map, mesh=AbstractMesh((2,), ("data",)), in_specs=PartitionSpec("data"),
                   out_specs=PartitionSpec(), check_vma=False)  # fmt: skip
    table = np.sin(np.arange(30.0).reshape(5, 6))
    other_table = np.sin(1.1 * np.arange(30.0).reshape(5, 6))
    cos, sin = np.cos(table[:, :3]), np.sin(table[:, :3])
    conv = partial(lax.conv_with_general_padding, lhs_dilation=None)
    helpers = (norm, unit, grouped, averaged, turned_neighbours, turned_halves, descent, rounded)
    values = {"table": table, "other_table": other_table, "conv": conv, "over_two_devices": over}
    libraries = {"jax": jax, "jnp": jnp, "lax": lax, "nn": nn}
    return libraries | values | {each.__name__: each for each in helpers}
