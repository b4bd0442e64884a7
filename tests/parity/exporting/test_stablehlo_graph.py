"""StableHLO programs in JAX: each operation is its own, and a program is a side of a comparison."""

import itertools
import linecache
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from parity.cli import main
from parity.exporting.stablehlo_graph import graph_of
from parity.exporting.stablehlo_graph.operators import OPERATORS
from vit_config import ConfigError, InputError, MissingFileError, WeightsError

DRAWN = np.random.default_rng(0)
KERNEL = DRAWN.standard_normal((3, 2, 2, 6)).astype(np.float32)
ROWS = DRAWN.standard_normal((5, 3)).astype(np.float32)
SMALL = jnp.asarray(DRAWN.standard_normal(5), jnp.bfloat16)
IMAGE = DRAWN.standard_normal((2, 7, 5, 4)).astype(np.float32)


def images(x):
    """Windows, slices and rows of images (B, 7, 5, 4), for any B."""
    padded = lax.pad(x, jnp.float32(0.5), ((0, 0, 0), (1, -1, 1), (0, 2, 0), (0, 0, 0)))
    return {
        "windows": lax.conv_general_dilated(
            x, KERNEL, (2, 1), ((1, 0), (0, 2)), rhs_dilation=(1, 2),
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2,
        ),
        "padded": padded.mean(1),
        "rows": x[:, jnp.array([3, -1, 0])],
        "part": lax.dynamic_slice(x, (0, 3, 1, 0), (1, 2, 4, 4)),
        "turned": jnp.flip(x, 2).transpose(0, 3, 1, 2)[:, ::2, 1:],
        "joined": jnp.concatenate([x, jnp.zeros_like(x[:, :2])], 1),
        "products": jnp.einsum("bhwc,wk->bhkc", x, ROWS),
    }  # fmt: skip


def numbers(x):
    """Functions of single numbers, and reductions of them."""
    positive = jnp.abs(x) + 0.25
    whole = jnp.round(4 * x).astype(jnp.int32)
    return {
        "errors": [function(y) for function in (lax.erf, lax.erfc) for y in (x, x + 1)],  # on one line
        "soft": lax.optimization_barrier(lax.logistic(x)) + jnp.tanh(x) + jnp.exp(x) + jnp.expm1(x),
        "roots": jnp.sqrt(positive) + lax.rsqrt(positive) + jnp.cbrt(x) + jnp.log(positive),
        "waves": jnp.sin(x) + jnp.cos(x) + jnp.arctan2(x, positive) + jnp.log1p(positive),
        "cut": lax.clamp(-0.5, x, 0.25) + jnp.where(x > 0, jnp.floor(x), jnp.ceil(x)),
        "clipped": jnp.clip(x, -0.2, 0.2),
        "powers": positive**1.5 + jnp.sign(x) - lax.rem(x, 0.3 * positive),
        "whole": lax.div(whole, 3) + whole // 2 + jnp.arange(4),
        "logic": ((x > 0) & (x < 0.5)) | ~jnp.isfinite(x) ^ (x == 1),
        "reduced": x.max((1, 3)) * x.min((1, 3)) + x.prod((1, 3)) + (x > 0).any((1, 3)),
        "places": x.argmax(1) + x.argmin(1),
        "filled": lax.select(x[0, 0, 0, 0] > 0, jnp.full((2, 3), 0.5), jnp.full((2, 3), 2.0)),
        "sums": lax.dot_general(
            whole.astype(jnp.int8), jnp.full((4, 2), 100, jnp.int8), (((3,), (0,)), ((), ())),
            preferred_element_type=jnp.int32,
        ),
        "narrow": (x.astype(jnp.bfloat16)[..., 0] * SMALL).astype(jnp.float32),
    }  # fmt: skip


def written(path, function, *, free=True):
    shape = export.symbolic_shape("b, 7, 5, 4") if free else IMAGE.shape
    exported = export.export(jax.jit(function), platforms=("cuda", "cpu"))(
        jax.ShapeDtypeStruct(shape, np.float32)
    )
    path.write_bytes(exported.serialize())
    return exported


@pytest.mark.parametrize("function", [images, numbers])
def test_a_program_is_what_jax_runs(tmp_path, function):
    wanted = written(tmp_path / "own.stablehlo", function).call(IMAGE)
    graph, shape = graph_of(tmp_path / "own.stablehlo")
    assert shape == [0, 7, 5, 4]
    output = jax.jit(graph)(IMAGE)
    assert output.keys() == wanted.keys()
    for name, value in wanted.items():
        most = 1e-2 if name == "narrow" else 3e-6
        for one, other in zip(*map(jax.tree.leaves, (output[name], value)), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(one, other, err_msg=name, rtol=most, atol=most)


def test_each_operator_is_tried(tmp_path):
    words: set[str] = set()
    for function, free in itertools.product((images, numbers), (True, False)):
        path = tmp_path / f"{function.__name__}_{free}.stablehlo"
        written(path, function, free=free)
        graph_of(path)
        words |= set(re.findall(r"= (\w+)_\(", "".join(linecache.getlines(str(path)))))
    assert OPERATORS.keys() - words <= {"logistic"}  # for which JAX 0.10 writes four others


def test_a_program_takes_what_its_function_took(tmp_path):
    path = tmp_path / "own.stablehlo"

    def function(tree, unused, *, x):
        return tree["weight"] * x + tree["bias"], jnp.ones(3)

    numbers = jnp.arange(4.0)
    given = {"weight": numbers, "bias": numbers + 1}, numbers[:2]
    path.write_bytes(export.export(jax.jit(function))(*given, x=numbers).serialize())
    graph, shape = graph_of(path)
    assert shape == []
    jax.tree.map(np.testing.assert_array_equal, graph(*given, x=numbers), function(*given, x=numbers))
    with pytest.raises(InputError, match=r"takes \(4\) and .* and its inputs are \(4\) and \(4\)$"):
        graph(numbers, numbers)
    path.write_bytes(export.export(jax.jit(lambda: jnp.ones(3)))().serialize())
    np.testing.assert_array_equal(graph_of(path)[0](), np.ones(3))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: jnp.sort(x, 1), "holds a sort, which is not evaluated here"),
        (lambda x: lax.fori_loop(0, 3, lambda i, y: y * x, x), "holds a while, which is not"),
        (lambda x: lax.reduce(x, np.float32(2), lax.add, (1,)), "holds a reduce, which is not"),
        (lambda x: lax.reduce(x, x[0, 0, 0, 0], lax.max, (1,)), "holds a reduce, which is not"),
        (lambda x: lax.reduce(x, np.float32(0), lambda a, b: a * b + a, (1,)), "holds a reduce, which"),
        (lambda x: lax.reduce((x, x), (x[0, 0, 0, 0],) * 2, lambda a, b: a, (1,)), "holds a reduce, wh"),
        (lambda x: jnp.abs(jnp.fft.fft(x)), "holds a .* of complex<f32>, which is not"),
        (lambda x: jnp.linalg.qr(x)[1], "holds a custom_call of .*geqrf.*, which is not"),
    ],
)
def test_what_is_not_evaluated_is_one_line(tmp_path, capsys, function, said):
    path = tmp_path / "odd.stablehlo"
    written(path, function, free=False)
    with pytest.raises(ConfigError, match=said):
        graph_of(path)
    assert main(["diff", str(path), str(path)]) == 2
    assert re.search(f"{re.escape(str(path))}: {said}", capsys.readouterr().err)


def test_what_is_no_program_is_said(tmp_path, capsys):
    with pytest.raises(MissingFileError, match="no such file"):
        graph_of(tmp_path / "none.stablehlo")
    (tmp_path / "bad.stablehlo").write_bytes(b"no program")
    with pytest.raises(WeightsError, match=r"jax\.export cannot read it"):
        graph_of(tmp_path / "bad.stablehlo")
    (tmp_path / "bad.pt2").write_bytes(b"no program")
    assert main(["diff", *[str(tmp_path / "bad.pt2")] * 2]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == f"parity diff: {tmp_path / 'bad.pt2'}: torch.export cannot read it (no whole zip archive)\n"
    )
    written(tmp_path / "own.stablehlo", lambda x: x)
    (tmp_path / "own.stablehlo.json").write_text("{")
    assert main(["diff", *[str(tmp_path / "own.stablehlo")] * 2]) == 2
    assert "own.stablehlo.json: is no JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("epsilon", "approximate", "cause", "word"),
    [(1e-5, False, "epsilon", "add_"), (1e-6, True, "activation", "multiply_")],
)
def test_what_differs_is_named_with_its_line(tmp_path, capsys, epsilon, approximate, cause, word):
    def layer(epsilon, approximate):
        def program(x):
            apart = x - x.mean(-1, keepdims=True)
            normed = apart * lax.rsqrt((apart * apart).mean(-1, keepdims=True) + epsilon)
            return jax.nn.gelu(normed.swapaxes(2, 3) @ ROWS, approximate=approximate)

        return program

    a, b = tmp_path / "a.stablehlo", tmp_path / "b.stablehlo"
    written(a, layer(1e-6, False))
    written(b, layer(epsilon, approximate))
    assert main(["diff", str(a), str(a)]) == 0
    assert main(["diff", str(a), str(b)]) == 1
    said = capsys.readouterr().out
    assert f"1. {cause}: " in said
    line = int(said.partition("B b.stablehlo:")[2].split()[0])
    assert word in linecache.getline(str(b), line)


def rest(x):
    """What neither numbers nor images of a free number need."""
    return {
        "cut": lax.clamp(-0.5, x, 0.25),
        "kept": lax.optimization_barrier(x) + 1,
        "part": lax.slice(x, (0, 1, 0, 0), (2, 5, 5, 4), (1, 2, 1, 1)),
    }


def test_every_operator_is_what_jax_runs(tmp_path, monkeypatch):
    seen = set()

    def noting(name, run):
        return lambda *values, **attributes: (seen.add(name), run(*values, **attributes))[1]

    for name, run in list(OPERATORS.items()):
        monkeypatch.setitem(OPERATORS, name, noting(name, run))
    for function in (images, numbers, rest):
        path = tmp_path / f"{function.__name__}.stablehlo"
        wanted = written(path, function, free=function is not rest).call(IMAGE)
        output = jax.jit(graph_of(path)[0])(IMAGE)
        if function is rest:
            jax.tree.map(np.testing.assert_array_equal, output, wanted)
    assert {*OPERATORS} - seen == {"logistic"}  # JAX writes it as 1 / (1 + exp(-x)) today
    np.testing.assert_allclose(
        OPERATORS["logistic"](jnp.asarray(IMAGE)), jax.nn.sigmoid(IMAGE), rtol=1e-6
    )
