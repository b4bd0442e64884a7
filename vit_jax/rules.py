"""Closed-form derivatives of functions whose automatic derivatives are slow to compute.

Each is a `jax.custom_jvp`: the closed form maps tangents, and the backward pass is its transpose, so
forward mode and derivatives of any order work. Inside `automatic_derivatives` the same functions are
differentiated step by step, which checks the closed forms.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

# part of the key of JAX's caches: a program compiled under one value never runs under the other
_automatic = jax.make_user_context(default_value=False)


@contextmanager
def automatic_derivatives() -> Iterator[None]:
    """Differentiate every function of this file step by step within this context."""
    with _automatic(True):
        yield


def normalise(x: jax.Array, epsilon: float, *, centred: bool = True) -> jax.Array:
    """Compute y = (x - mean x) / s with s^2 = mean (x - mean x)^2 + epsilon, over the last axis.

    The two-pass variance of LayerNorm (arXiv 1607.06450, equation 4); not `centred`, the mean is taken
    to be zero, as in RMSNorm (arXiv 1910.07467, equation 4).

    The derivative along t is (t - mean t - y mean(y t)) / s, without mean t if not centred. This map is
    symmetric, so the gradient has the same form. It is divided by s first: else a CPU keeps 1 / s for
    each of the D columns.

    x is used several times, and its gradients would join those of the residual stream one by one. XLA's
    CPU backend then computes the stream again in every block: a step costs the square of the depth. A
    copy, which compiles to nothing, has them added up first.

    Args:
        x: (..., D).

    Returns:
        (..., D), in at least float32.
    """
    x = jnp.copy(x)
    return (_normalise.fun if _automatic.value else _normalise)(x, epsilon, centred)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _normalise(x: jax.Array, epsilon: float, centred: bool) -> jax.Array:
    return _normalised(x, epsilon, centred)[0]


@_normalise.defjvp
def _(epsilon: float, centred: bool, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (x,), (t,) = primals, tangents
    y, inverse = _normalised(x, epsilon, centred, held=True)
    t = t.astype(y.dtype)
    along = _mean(y * t) * y
    (t,) = _held(t - _mean(t) - along if centred else t - along)
    return y, t * inverse


def _normalised(
    x: jax.Array, epsilon: float, centred: bool, *, held: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Return the result (..., D) and 1 / s (..., 1)."""
    x = _wide(x)
    x = x - _mean(x) if centred else x
    inverse = jax.lax.rsqrt(_mean(x * x) + epsilon)
    if held:
        (inverse,) = _held(inverse)
    return x * inverse, inverse


def _mean(x: jax.Array) -> jax.Array:
    return x.mean(axis=-1, keepdims=True)  # (..., 1)


def _held(*values: jax.Array) -> Sequence[jax.Array]:
    """Return the values; in a derivative, a CPU stores each once, and computes none of them again
    where it is read (with `vit_jax.compiling.compiler_options`)."""
    return jax.lax.platform_dependent(*values, cpu=_stored, default=lambda *values: values)


def _stored(*values: jax.Array) -> Sequence[jax.Array]:
    return jax.lax.optimization_barrier(values)


def gelu(x: jax.Array) -> jax.Array:
    """Compute y = x P(x), P the distribution function of a standard normal (arXiv 1606.08415).

    The derivative is P(x) + x p(x) with the density p. A CPU takes P(x) from y / x, so that the
    backward pass keeps x and y alone, and computes no error function; a TPU too. A GPU moves fewer bytes
    if it computes P(x) again, and so does a CPU in half precision, where y / x lost digits.

    Args:
        x: (...).

    Returns:
        (...), computed in at least float32.
    """
    return (_gelu.fun if _automatic.value else _gelu)(x)


@jax.custom_jvp
def _gelu(x: jax.Array) -> jax.Array:
    wide = _wide(x)
    return (wide * _share(wide, fast=_is_half(x))).astype(x.dtype)


@_gelu.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (x,), (t,) = primals, tangents
    x, y = _held(x, _gelu(x))
    of_output = lambda x, y: _quotient(x, y) + x * _density(x)  # noqa: E731
    cpu = _slope if _is_half(x) else of_output
    return y, jax.lax.platform_dependent(x, y, cpu=cpu, tpu=of_output, default=_slope) * t


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _slope(x: jax.Array, y: jax.Array) -> jax.Array:
    wide = _wide(x)
    return (_share(wide, fast=_is_half(x)) + wide * _density(wide)).astype(x.dtype)


def _is_half(x: jax.Array) -> bool:
    return jnp.finfo(x.dtype).bits < 32


def _share(x: jax.Array, *, fast: bool) -> jax.Array:
    """Return P(x); the fast formula is wrong by up to 1e-7, which half precision does not resolve."""
    scaled = x * 0.5**0.5
    return 0.5 + 0.5 * jax.lax.erf(scaled) if fast else 0.5 * jax.lax.erfc(-scaled)


@jax.custom_jvp
def _quotient(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return P(x), given y = x P(x)."""
    limits = jnp.finfo(x.dtype)
    small = jnp.abs(x) < limits.tiny / limits.eps  # y has lost digits
    return jnp.where(small, 0.5, y / jnp.where(small, 1.0, x))


@_quotient.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    return _quotient(*primals), _density(primals[0]) * tangents[0]


def _density(x: jax.Array) -> jax.Array:
    return jnp.exp(-0.5 * x * x) * (0.5 / jnp.pi) ** 0.5


def split(x: jax.Array, at: int | Sequence[int]) -> list[jax.Array]:
    """Split the last axis, as `jnp.split` does.

    A GPU stores the gradient of x once: XLA would join the parts' gradients anew for every product
    that reads it.
    """
    return jnp.split((_whole.fun if _automatic.value else _whole)(x), at, axis=-1)


@jax.custom_jvp
def _whole(x: jax.Array) -> jax.Array:
    return x


@_whole.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (t,) = jax.lax.platform_dependent(
        *tangents, cuda=_stored, rocm=_stored, default=lambda *values: values
    )
    return primals[0], t


def softmax_product(logits: jax.Array, v: jax.Array) -> jax.Array:
    """Compute y = (e v) / s with e = exp(logits - max logits) and s = sum e over the last axis.

    The quotient has D columns where softmax(logits) = e / s has M, and softmax(logits) is neither
    stored nor kept for the backward pass.

    The derivative along (t, u) is (e (t - sum(e t) / s)) v / s + (e u) / s.

    Args:
        logits: (..., N, M), in the type of v.
        v: (..., M, D).

    Returns:
        (..., N, D).
    """
    return (_softmax_product.fun if _automatic.value else _softmax_product)(logits, v)


@jax.custom_jvp
def _softmax_product(logits: jax.Array, v: jax.Array) -> jax.Array:
    e, s = _softmax_parts(logits)
    return jnp.matmul(e, v) / s


@_softmax_product.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (logits, v), (t, u) = primals, tangents
    e, s = _softmax_parts(logits)
    centred = t - (e * t).sum(axis=-1, keepdims=True) / s
    return jnp.matmul(e, v) / s, (jnp.matmul(e * centred, v) + jnp.matmul(e, u)) / s


def _softmax_parts(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return e (..., N, M) and s (..., N, 1)."""
    e = jnp.exp(logits - jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True)))
    return e, e.sum(axis=-1, keepdims=True)


def project(x: jax.Array, weight: jax.Array, precision: Any = None) -> jax.Array:
    """Compute y = x W, the product of a linear layer.

    Where the layer narrows, a CPU computes the gradient of W as (g^T x)^T: the same numbers in a
    fifth less time than x^T g, to which XLA would rewrite it but for a barrier. The barrier is in
    the derivative alone, and on a CPU alone: a TPU moves more bytes with it.

    Args:
        x: (tokens, inputs).
        weight: (inputs, ...), the outputs in one axis or several.

    Returns:
        (tokens, ...).
    """
    narrows = weight.ndim == 2 and weight.shape[0] > weight.shape[1]
    ruled = narrows and not _automatic.value
    return (_project if ruled else _project.fun)(x, weight, precision)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _project(x: jax.Array, weight: jax.Array, precision: Any) -> jax.Array:
    return jnp.tensordot(x, weight, axes=1, precision=precision)


@_project.defjvp
def _(precision: Any, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (x, weight), (t, u) = primals, tangents
    u = jax.lax.platform_dependent(u, cpu=_transposed_twice, default=lambda u: u)
    multiply = partial(jnp.matmul, precision=precision)
    return multiply(x, weight), multiply(t, weight) + multiply(x, u)


def _transposed_twice(u: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(u.T).T
