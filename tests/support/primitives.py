"""For each primitive that the walk of a jaxpr has a rule for: ordinary calls, and odd ones.

A case is an expression of the arrays of `GIVEN`; its value is an array, or a tuple of them.
"""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

RNG = np.random.default_rng(11)
GIVEN: dict[str, Any] = {
    "x": RNG.normal(size=(3, 5)),
    "y": RNG.normal(size=(3, 5)) + 0.1,
    "p": RNG.uniform(0.2, 0.8, size=(3, 5)),
    "s": np.array(0.7),
    "t": RNG.normal(size=(2, 3, 4)),
    "none": np.zeros((0, 4)),
    "c": RNG.normal(size=(2, 4, 5, 6)),
    "w": RNG.normal(size=(6, 4, 3, 2)),
    "z": RNG.normal(size=(3, 5)) + 1j * RNG.normal(size=(3, 5)),
    "i": np.array([[-7, 7, -8, 3, 0], [5, -5, 9, -1, 2], [2, 2, 6, -6, 4]], np.int32),
    "j": np.array([[2, -2, 3, -3, 5], [2, 2, -4, 7, -7], [1, -1, 6, 4, 3]], np.int32),
    "u": np.array([[1, 200, 255], [7, 0, 96]], np.uint8),
    "b": np.array([[True, False, True, True, False]] * 2 + [[False] * 5]),
    "halves": np.array([0.49999999999999994, -0.5, 0.5, 1.5, 2.5, -2.5, 4503599627370497.0, -0.0]),
    "wild": np.array([np.inf, -np.inf, np.nan, 1e300, -1.5, 2.7, 0.0]),
}
"""Arrays that the cases are given."""
SMOOTH = frozenset("xypstcw")
"""Those by which cases are differentiated."""
SCOPE = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "dot": lax.dot_general}
CASES: dict[str, list[str]] = {}
"""Of primitives that have a rule."""
OTHERS: dict[str, list[str]] = {}
"""Of what the walk plays itself, such as loops, and of what JAX is asked to run."""


def case(names: str, *expressions: str, among: dict[str, list[str]] = CASES) -> None:
    """Add cases of one or several primitives, whose name stands in them as `NAME`."""
    for name in names.split():
        among.setdefault(name, []).extend(each.replace("NAME", name) for each in expressions)


def names_of(expression: str) -> list[str]:
    """Return the names of the arrays in a case."""
    return [name for name in GIVEN if re.search(rf"(?<![\w.]){name}\b(?!=)", expression)]


case(
    "exp exp2 expm1 tanh sin cos tan sinh cosh cbrt logistic abs sign neg floor ceil square",
    "lax.NAME(x)",
)
case("log log1p sqrt rsqrt asin acos atan erf erfc erf_inv lgamma digamma", "lax.NAME(p)", "lax.NAME(s)")
case("exp log tanh sqrt rsqrt logistic sin cos abs sign square neg", "lax.NAME(z)")
case("erf erfc lgamma abs sign floor ceil neg square is_finite", "lax.NAME(wild)")
case("exp tanh logistic abs sign neg square", "lax.NAME(s)")
case("abs sign neg square", "lax.NAME(i)")
case("add sub mul max min rem div", "lax.NAME(x, y)", "lax.NAME(i, j)")
case("add sub mul", "lax.NAME(u, u + np.uint8(77))")  # of few bits, which overflow
case("max min", "lax.NAME(wild, -wild)")
case("atan2 nextafter", "lax.NAME(x, y)")
case("eq ne lt le gt ge", "lax.NAME(i, j)", "lax.NAME(wild, wild)", "lax.NAME(wild, -wild)")
case("and or xor", "lax.bitwise_NAME(i, j)", "lax.bitwise_NAME(b, ~b)", "lax.bitwise_NAME(u, u + u)")
case("not", "lax.bitwise_not(i)", "lax.bitwise_not(u)", "lax.bitwise_not(b)")
case("div", "z / (2 - z)", "lax.div(i, i * 0)", "lax.div(u, np.uint8(7))")
case("div", "lax.div(i * 0 + np.iinfo(np.int32).min, i * 0 - 1)")
case("rem", "lax.rem(i, i * 0)", "lax.rem(wild, np.float64(2))", "lax.rem(u, u[::-1])")
case("pow", "lax.pow(p, x)", "lax.pow(x, i % 4)", "lax.pow(wild, np.float64(0.5))")
case("integer_pow", *(f"lax.integer_pow(x, {n})" for n in (-3, -1, 2, 3, 7)))
case("integer_pow", "lax.integer_pow(i, 3)", "lax.integer_pow(z, 5)")
case("is_finite", "lax.is_finite(x)")
case("real imag conj", "lax.NAME(z)")
case("conj", "lax.conj(x) * 1j")
case("complex", "lax.complex(x, y)")
case("copy", "jnp.array(x, copy=True)")
case("reduce_precision", "lax.reduce_precision(x, 11, 52)")
case("clamp", "lax.clamp(y - 1, x, y)", "lax.clamp(-0.5, x, 0.5)", "lax.clamp(0.5, x, -0.5)")
case("clamp", "lax.clamp(np.int32(-2), i, np.int32(3))", "lax.clamp(-1.0, wild, 1.0)")
case("add_any", "jax.grad(lambda x: (jnp.sin(x) * x).sum())(x)")

case("reduce_sum reduce_prod reduce_max reduce_min", "lax.NAME(x, (0, 1))", "lax.NAME(t, (0, 2))")
case("reduce_sum reduce_prod reduce_max reduce_min", "lax.NAME(i, (1,))", "lax.NAME(u, (0, 1))")
case("reduce_sum reduce_prod reduce_max reduce_min", "lax.NAME(none, (0,))", "lax.NAME(none, (1,))")
case("reduce_sum reduce_prod reduce_max reduce_min", "lax.NAME(i[:0], (0,))", "lax.NAME(wild, (0,))")
case("reduce_max reduce_min", "lax.NAME(b, (0,))", "lax.NAME(b[:0], (0,))")
case("reduce_and reduce_or", "lax.NAME(b, (0,))", "lax.NAME(b[:0], (0, 1))", "lax.NAME(i, (0, 1))")

for _way in ("AWAY_FROM_ZERO", "TO_NEAREST_EVEN"):
    case("round", *(f"lax.round({each}, lax.RoundingMethod.{_way})" for each in ("halves", "wild", "x")))
for _type in ("int32", "int64", "uint8", "uint32", "bool_"):
    case(
        "convert_element_type",
        *(f"lax.convert_element_type({x}, np.{_type})" for x in ("wild", "99 * x")),
    )
for _type in ("int8", "uint32", "float64", "bool_", "complex128"):
    case(
        "convert_element_type", *(f"lax.convert_element_type({x}, np.{_type})" for x in ("99 * i", "b"))
    )
case(
    "convert_element_type",
    "lax.convert_element_type_p.bind(z, new_dtype=np.dtype(float), weak_type=False, sharding=None)",
)
case(
    "iota",
    *(
        f"lax.broadcasted_iota({to}, (2, 3, 4), 1)"
        for to in ("int", "np.float32", "complex", "np.uint8")
    ),
)

case("broadcast_in_dim", "lax.broadcast_in_dim(x, (2, 3, 4, 5), (1, 3))", "jnp.broadcast_to(s, (2, 3))")
case("broadcast_in_dim", "jnp.broadcast_to(x[:, :1], (3, 4))", "jnp.broadcast_to(none, (2, 0, 4))")
case("reshape", "lax.reshape(t, (4, 6))", "lax.reshape(t, (6, 4), dimensions=(2, 0, 1))")
case("reshape", "lax.reshape(s, (1, 1))", "lax.reshape(none, (2, 0))")
case("reshape", "lax.reshape(t, (24,), dimensions=(1, 2, 0))")
case("transpose", "lax.transpose(t, (2, 0, 1))", "lax.transpose(none, (1, 0))")
case("squeeze", "lax.squeeze(x[None, :, None], (0, 2))", "lax.squeeze(s[None], (0,))")
case("rev", "lax.rev(t, (0, 2))", "lax.rev(none, (0,))")
case("slice", "lax.slice(t, (0, 1, 0), (2, 3, 4), (1, 1, 3))", "lax.slice(x, (1, 2), (1, 4))")
case("dynamic_slice", "lax.dynamic_slice(x, (i[0, 3], i[1, 2]), (2, 3))")
case(
    "dynamic_slice", "lax.dynamic_slice(x, (250, -9), (2, 3))", "lax.dynamic_slice(none, (0, 1), (0, 2))"
)
case("dynamic_slice", "lax.dynamic_slice(jnp.tile(x, (1, 60)), (u[0, 0], u[0, 1]), (2, 3))")
case("dynamic_update_slice", "lax.dynamic_update_slice(x, y[:2, :2], (i[0, 3], i[0, 4]))")
case("dynamic_update_slice", "lax.dynamic_update_slice(x, x[:1] * 2, (i[0, 0], i[0, 1]))")
case("dynamic_update_slice", "lax.dynamic_update_slice(i, i[1:2, :2], (1, 1)) * x")
case("concatenate", "lax.concatenate([x, y[:, :2], x[:, :0]], 1)", "jnp.concatenate([i, i[:1]])")
case("split", "tuple(lax.split(t, (1, 0, 3), 2))", "tuple(lax.split(x, (3,), 0))")
case("pad", "lax.pad(x, 2.0, ((1, 2, 0), (0, 1, 2)))", "lax.pad(x, 0.0, ((-1, 2, 1), (2, -3, 2)))")
case("pad", "lax.pad(x, s, ((-1, -1, 0), (-4, -1, 0)))", "lax.pad(none, 1.0, ((2, 1, 3), (0, 0, 1)))")
case("pad", "lax.pad(x, 0.0, ((-2, 0, 3), (-1, -1, 1)))", "lax.pad(x, 0.0, ((0, -2, 1), (-8, 3, 2)))")
case("pad", "lax.pad(i, np.int32(7), ((1, 0, 0), (0, 0, 1)))")
case("select_n", "lax.select_n(b, x, y)", "lax.select_n(s > 0, x, y)", "lax.select_n(abs(i) % 2, x, -x)")
case("select_n", "lax.select_n(abs(i) % 3, x, y, x * y)", "lax.select_n(np.int32(1), x, y, x * y)")
case(
    "select_n",
    "lax.select_n(lax.broadcasted_iota(np.int32, (3, 5), 0), *(x * (n + 1) for n in range(70)))",
)
case("argmax argmin", "lax.NAME(x, 1, np.int32)", "lax.NAME(t, 0, np.int64)", "lax.NAME(i, 1, np.int32)")
case(
    "argmax argmin",
    "lax.NAME(wild, 0, np.uint8)",
    "lax.NAME(wild[:2], 0, np.int32)",
    "lax.NAME(b, 1, np.int8)",
)
for _x, _type in (
    ("x", "np.uint64"), ("x", "np.int16"), ("s", "np.int64"), ("i", "np.uint32"), ("i", "np.uint8"),
    ("i | (1 << 29)", "np.float32"), ("(i << 9).astype(np.int16)", "jnp.bfloat16"), ("u", "np.int8"),
    ("i.astype(jnp.bfloat16)", "np.uint16"), ("i.astype(np.float16)", "np.int16"), ("x.T", "np.int64"),
    ("i.astype(np.float32)", "np.int32"), ("i.astype(np.float32)", "np.int8"),
    ("i[:, :4].astype(np.int8)", "np.int32"), ("i[:, :4].T.astype(np.int8)[:, :2]", "np.int16"),
):  # fmt: skip
    case("bitcast_convert_type", f"lax.bitcast_convert_type({_x}, {_type})")
case(
    "cumsum",
    "lax.cumsum(x, 1)",
    "lax.cumsum(t, 2, reverse=True)",
    "lax.cumsum(i, 0)",
    "lax.cumsum(u, 0)",
)
case("cumsum", "lax.cumsum(none, 0, reverse=True)")
case("dot_general", *(f"dot(t, t * t, {dims})" for dims in (
    "(((2,), (2,)), ((0,), (0,)))", "(((1,), (1,)), ((2, 0), (2, 0)))", "(((0, 2), (0, 2)), ((), ()))",
    "(((2, 0), (2, 0)), ((), ()))", "(((), ()), ((0,), (0,)))", "(((), ()), ((), ()))",
)))  # fmt: skip
case("dot_general", *(f"dot(none, none, {dims})" for dims in (
    "(((0,), (0,)), ((), ()))", "(((1,), (1,)), ((), ()))", "(((1,), (1,)), ((0,), (0,)))",
)))  # fmt: skip
case("dot_general", "z @ z.T", "i @ j.T", "u @ u.T", "b @ b.T", "x @ z.T", "x @ y[0]")
for _type in ("uint32", "float32", "int64"):
    case("dot_general", f"dot(u, u, (((1,), (1,)), ((), ())), preferred_element_type=np.{_type})")

OTHERS["scan"] = [
    "lax.scan(lambda c, r: (0.5 * c + jnp.sin(r), (c * r, c)), x[0], x)",
    "lax.scan(lambda c, r: (0.5 * c + jnp.sin(r), (c * r, c)), x[0], x, reverse=True)",
    "lax.scan(lambda c, r: (0.5 * c + jnp.sin(r), (c * r, c)), x[0], x, unroll=2)",
    "lax.scan(lambda c, _: (c * jnp.cos(c), None), x, None, length=4)[0]",
    "lax.scan(lambda c, r: (c + r.sum(), c), s, none)",
    "lax.map(jnp.tanh, t, batch_size=2)",
    "jax.vmap(lambda r: lax.associative_scan(jnp.add, r, reverse=True))(x)",
    "lax.scan(lambda c, r: lax.scan(lambda d, q: (d * q, d), c, r), s, x)",
    "lax.scan(jax.checkpoint(lambda c, r: (jnp.tanh(c + r), c)), x[0], y)",
]
OTHERS["while"] = [
    "lax.fori_loop(0, 3, lambda k, c: jnp.sin(c) * k, x)",
    "lax.fori_loop(2, 2, lambda k, c: c / 0, x)",
    "lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * c[0]), (np.int32(1), i))",
]
OTHERS["cond"] = [
    "lax.cond(x[0, 0] > y[0, 0], jnp.sin, jnp.cos, x)",
    "lax.switch(9, (jnp.sin, jnp.cos, jnp.tanh), x)",
    "lax.switch(-3, (jnp.sin, jnp.cos, jnp.tanh), x)",
    "lax.map(lambda r: lax.cond(r[0] > 0, jnp.sin, jnp.cos, r), x)",
    "jax.vmap(lambda r: lax.cond(r[0] > 0, jnp.sin, jnp.cos, r))(x)",
]
OTHERS["calls"] = [
    "jax.jit(lambda a, b: jnp.sin(a) * b)(x, y)",
    "jax.checkpoint(lambda a: jnp.tanh(jnp.sin(a)))(x)",
    "jax.nn.relu(x)",
    "jax.nn.softmax(x)",
    "jax.nn.logsumexp(x, 1)",
    "jax.nn.gelu(x)",
    "jax.nn.silu(x)",
    "lax.optimization_barrier((x, y))",
    "jax.lax.custom_root(lambda r: r * r - p, p, lambda f, r: jnp.sqrt(p), lambda g, "
    "r: r / g(jnp.ones_like(r)))",
    "lax.stop_gradient(x) * x",
    "jnp.linalg.norm(x)",
    "jnp.var(x, 1)",
    "jnp.median(x, 1)",
]
OTHERS["gather"] = [
    "x[abs(i) % 3]",
    "x[i[0, :2], i[0, :2]]",
    "jnp.take(x, i, 0, mode='clip')",
    "jnp.take(x, i, 0, mode='fill')",
    "jnp.take(x, i, 1, mode='wrap')",
    "jnp.take_along_axis(x, abs(i) % 5, 1)",
    "x[::2, 4:1:-2]",
    "x[:, i[0, 1]]",
    "t[1, ..., ::2]",
    "x.at[i, 0].get(mode='fill', fill_value=7.0)",
    "none[:, jnp.array([1, 1])]",
]
OTHERS["scatter"] = [
    "x.at[abs(i[0]) % 3, j[0]].add(y[0], mode='drop')",
    "x.at[abs(i[0]) % 3, j[0]].add(y[0], mode='clip')",
    "x.at[abs(i[0]) % 3, j[0]].min(y[0], mode='drop')",
    "x.at[abs(i[0]) % 3, j[0]].min(y[0], mode='clip')",
    "x.at[abs(i[0]) % 3, j[0]].max(y[0], mode='drop')",
    "x.at[abs(i[0]) % 3, j[0]].max(y[0], mode='clip')",
    "x.at[abs(i[0]) % 3, j[0]].set(y[0], mode='drop')",
    "x.at[abs(i[0]) % 3, j[0]].subtract(y[0], mode='drop')",
    "x.at[abs(i[0]) % 3, j[0]].subtract(y[0], mode='clip')",
    "x.at[1:, ::2].add(2.0)",
    "i.at[0, jnp.array([1, 1, 2])].add(5)",
    "lax.stop_gradient(x).at[:, 1].apply(jnp.sin)",
    "x.at[jnp.array([2, 0]), i[1, 4]].multiply(y[0, :2], unique_indices=True)",
    "i.at[abs(i[0]) % 3, j[0]].multiply(j[1], mode='drop')",
]
OTHERS["sort"] = [
    "lax.sort((i, x, y), dimension=1, num_keys=1)",
    "lax.sort((abs(i) % 3, x), dimension=0, num_keys=2)",
    "jnp.sort(wild)",
    "jnp.argsort(x, 0, descending=True)",
    "lax.sort(x, dimension=0)",
    "lax.top_k(x, 2)",
    "lax.top_k(i, 3)",
    "jnp.sort(none, 0)",
]
OTHERS["conv"] = [
    "lax.conv_general_dilated(c, w, (2, 1), ((1, 2), (0, -1)), lhs_dilation=(1, 2), "
    "rhs_dilation=(2, 1))",
    "lax.conv_general_dilated(c, w[:, :2], (1, 1), 'SAME', feature_group_count=2)",
    "lax.conv_general_dilated(c, w, (1, 1), 'VALID', batch_group_count=2)",
    "lax.conv_general_dilated(c.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 2), "
    "'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
    "lax.conv_transpose(c, w, (2, 2), 'SAME', dimension_numbers=('NCHW', 'OIHW', 'NCHW'))",
    "lax.conv_general_dilated_patches(c, (2, 2), (1, 2), 'SAME')",
]
OTHERS["windows"] = [
    "lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), 'SAME')",
    "lax.reduce_window(x, 0.0, lax.add, (2, 3), (1, 1), ((1, 0), (0, 2)))",
    "lax.reduce_window(i, np.int32(99), lax.min, (2, 1), (1, 1), 'VALID')",
    "lax.reduce_window(lax.stop_gradient(x), 1.0, lax.mul, (1, 2), (1, 1), 'VALID')",
    "lax.reduce(i, np.int32(0), lax.bitwise_xor, (1,))",
    "jnp.convolve(x[0], y[0, :3])",
    "lax.reduce(i, np.int32(7), lambda a, b: (a ^ b) + 1, (1,))",
]
OTHERS["running"] = [
    "lax.cumprod(x, 1)",
    "lax.cummax(x, 0, reverse=True)",
    "lax.cummin(i, 1)",
    "lax.cumlogsumexp(x, 1, reverse=True)",
]
OTHERS["bits"] = [
    "lax.shift_left(i, np.int32(3))",
    "lax.shift_right_arithmetic(i, np.int32(1))",
    "lax.shift_right_logical(i, np.int32(1))",
    "lax.population_count(u)",
    "lax.clz(u)",
    "lax.reduce_xor(i, (0,))",
    "lax.mul(u, u)",
]
OTHERS["random"] = [
    "jax.random.normal(jax.random.key(3), (4,))",
    "jax.random.uniform(jax.random.key(3), (4,), np.float64)",
    "jax.random.permutation(jax.random.PRNGKey(1), x)",
    "jax.random.bernoulli(jax.random.key(0), p)",
    "jax.random.categorical(jax.random.key(0), x)",
    "jax.random.randint(jax.random.key(0), (3,), 0, 9)",
    "jax.random.bits(jax.random.split(jax.random.key(5))[1], (3,), 'uint16')",
    "jax.random.gamma(jax.random.key(0), p)",
    "jax.random.truncated_normal(jax.random.fold_in(jax.random.key(0), 2), -1.0, 1.0, (3,))",
]
OTHERS["more functions"] = [
    "lax.asinh(x)",
    "lax.acosh(1 + p)",
    "lax.atanh(p)",
    "lax.bessel_i0e(x)",
    "lax.bessel_i1e(x)",
    "lax.igamma(p, p + 1)",
    "lax.polygamma(1.0, p)",
    "jnp.logaddexp(x, y)",
    "jnp.sinc(x)",
    "lax.fft(z, 'fft', (5,))",
    "lax.fft(x, 'rfft', (3, 5))",
    "jnp.fft.irfft(z, 7)",
    "jnp.linalg.inv(x[:, :3])",
    "jnp.linalg.cholesky(x @ x.T)",
    "jnp.linalg.solve(x[:, :3], y)",
    "jnp.linalg.svd(x, compute_uv=False)",
    "jnp.linalg.det(x[:, :3])",
    "jnp.linalg.qr(x.T)[1]",
    "jnp.einsum('abc,abd->cd', t, t)",
    "jnp.interp(x, p[0].cumsum(), y[0])",
    "lax.zeta(lax.stop_gradient(p) + 2, lax.stop_gradient(p))",
]
