"""The upper tail of the normal distribution in float32, of operations cheap to XLA's CPU backend.

It calls an exponential, a division and erfc expensive: it keeps their results for the backward pass, in
memory, and computes both branches of erfc. Sums, products and shifts it computes again wherever they are
used, so that a loop reads its input and writes its result, and that is all.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

FARTHEST = 13.2
"""Beyond it the tail is not a normal number of float32, and `Tail` stays where it is."""
SHIFT = 3.0

# of G, lowest first, from tools/fit_normal_tail.py; relative error 1.8e-8
_G = (
    -6.968256740e-01,
    3.562958078e-01,
    6.979939407e-02,
    -9.234639691e-02,
    -1.608396272e-02,
    -4.285062102e-02,
    9.848405089e-02,
    -5.056346653e-02,
    7.054510765e-03,
)
# exp(f) = 1 + f + f^2 E(f) for |f| <= log(2) / 2 (Cephes, expf.c), highest first
_E = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


class Tail(NamedTuple):
    """What the tail Q(a) = erfc(a / sqrt 2) / 2 = ratio exp(-a^2 / 2) is made of."""

    a: jax.Array
    """|x|, at most `FARTHEST`."""
    ratio: jax.Array
    less: jax.Array
    """1/2 - ratio, which keeps all its digits where a is small."""
    expm1: jax.Array
    scale: jax.Array
    """A power of two; exp(-a^2 / 2) = (1 + expm1) scale. It is 1 where a < 0.8."""


def tail(x: jax.Array) -> Tail:
    """The tail at |x|; x is float32, of any shape.

    With u = a / (a + 3), ratio = (1 - u) (1/2 + u G(u)) (the substitution of Shepherd and Laframboise,
    Mathematics of Computation 36:249), so that nothing is rounded at a = 0.
    """
    a = jnp.minimum(jnp.abs(x), FARTHEST)
    u = a * _reciprocal(a + SHIFT)
    G = _polynomial(_G[::-1], u)
    q = 0.5 + u * G
    y = -0.5 * a * a
    n = jnp.round(y * 1.4426950408889634)  # in units of log 2
    f = (y - n * 0.693359375) + n * 2.12194440e-4  # log 2 in two parts: the first product is exact
    expm1 = f + f * (f * _polynomial(_E, f))
    scale = jax.lax.bitcast_convert_type((n.astype(jnp.int32) + 127) << 23, jnp.float32)
    return Tail(a, q - u * q, u * (q - G), expm1, scale)


def _reciprocal(b: jax.Array) -> jax.Array:
    """1 / b by Newton's method, from a guess that subtracts the exponent."""
    guess = jnp.int32(0x7EF311C3) - jax.lax.bitcast_convert_type(b, jnp.int32)
    w = jax.lax.bitcast_convert_type(guess, jnp.float32)
    for _ in range(3):  # relative errors: 0.12, 1.5e-2, 2.2e-4, 5e-8
        w = w * (2.0 - b * w)
    return w


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    """By Horner's rule, highest coefficient first."""
    total = jnp.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        total = total * x + each
    return total
