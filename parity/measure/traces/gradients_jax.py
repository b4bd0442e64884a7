"""Observing the gradients that arrive at arrays, inside any `jax.grad`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero


def watch_gradient(x: jax.Array, seen: Callable[[jax.Array], None]) -> jax.Array:
    """Return a stand-in for `x` with the same values; `seen` is called with the gradient that
    arrives at it, as it is traced."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x

    @jax.custom_vjp
    def pass_on(x: jax.Array) -> jax.Array:
        return x

    def backward(_: None, arrived: jax.Array) -> tuple[jax.Array]:
        seen(arrived)
        return (arrived,)

    pass_on.defvjp(lambda x: (x, None), backward)
    return pass_on(x)


def is_differentiated(x: jax.Array) -> bool:
    """Return whether `jax.grad` or its like is known to differentiate a value, where it is traced.

    JAX has no public API for this; if its private one changed, the answer would be no for every value.
    """
    same = not getattr(jax.typeof(x), "vma", ())  # the same on all devices of a mesh
    return hasattr(x, "tangent") and same and jnp.issubdtype(x.dtype, jnp.floating)


def link_gradients(
    x: jax.Array, link: jax.Array, seen: Callable[[jax.Array], None], last: Callable[[], None]
) -> tuple[jax.Array, jax.Array]:
    """Watch the gradients of several arrays, one per call, and tell when all were seen.

    Args:
        x: an array that `is_differentiated`.
        link: a number: the link returned with the array before, or any for the first.
        seen: called with the gradient that arrives at `x`, as it is traced.
        last: called after every `seen` of this array and the later ones, if this array is the first.

    Returns:
        The stand-in for `x`, and the link for the next array.
    """
    followed: list[tuple[bool, bool]] = []

    @jax.custom_vjp
    def pass_on(x: jax.Array, link: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x, link

    def forward(x: Any, link: Any) -> tuple[tuple[jax.Array, jax.Array], None]:
        followed.append((x.perturbed, link.perturbed))
        return (x.value, link.value), None

    def backward(_: None, arrived: tuple[Any, Any]) -> tuple[jax.Array | None, jax.Array | None]:
        gradient, _ = arrived
        x_followed, link_followed = followed[-1]
        stopped = isinstance(gradient, SymbolicZero)
        if x_followed and not stopped:
            seen(gradient)
        if not link_followed:
            last()
        # not a symbolic zero, which would end the backward pass before the first of the arrays
        return None if stopped else gradient, jnp.zeros_like(link) if link_followed else None

    pass_on.defvjp(forward, backward, symbolic_zeros=True)
    return pass_on(x, link)
