"""Seeing the gradients that arrive at arrays while anybody's `jax.grad` runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero


def watch_gradient(x: jax.Array, seen: Callable[[jax.Array], None]) -> jax.Array:
    """An array that differentiation takes for `x`; `seen` is given the gradient that arrives at it, as
    it is traced."""
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
    """Whether a value is known to be followed by `jax.grad` or its like, where it is traced.

    JAX has no public word on this; were its private one to change, no value would be known to be.
    """
    alike = not getattr(jax.typeof(x), "vma", ())  # on all devices, not only on this one
    return hasattr(x, "tangent") and alike and jnp.issubdtype(x.dtype, jnp.floating)


def link_gradients(
    x: jax.Array, link: jax.Array, seen: Callable[[jax.Array], None], last: Callable[[], None]
) -> tuple[jax.Array, jax.Array]:
    """`watch_gradient` for one after the other of several arrays, which tells when all are seen.

    Args:
        x: see `is_differentiated`.
        link: a number; that which was returned with the array before, or any for the first.
        seen: is given the gradient that arrives at `x`, as it is traced.
        last: called after all `seen` of this array and those behind it, if it is the first.

    Returns:
        What differentiation takes for `x`, and the link for the next.
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
        # no symbolic zero: it would end the backward pass before the first of the arrays
        return None if stopped else gradient, jnp.zeros_like(link) if link_followed else None

    pass_on.defvjp(forward, backward, symbolic_zeros=True)
    return pass_on(x, link)
