"""What one program holds or computes in fewer bits is compared with what it was rounded from."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx

import parity
from parity.verifier.locate import compare
from parity.verifier.programs.sides import record
from parity.verifier.search import exchange
from parity.verifier.search.region import Region
from tests.support import operations_models as models


def test_bfloat16_weights_are_compared_with_those_they_were_rounded_from():
    wide, _, x = models.torch_model()
    model, _, _ = models.torch_model()
    comparison = compare((wide, x), (model.bfloat16(), torch.from_numpy(x).bfloat16()))
    assert comparison.verdict == "EQUAL"
    assert len(comparison.rounded) > 10
    assert not model.training
    assert model.head.weight.dtype == torch.bfloat16


def test_a_weight_that_is_an_argument_of_its_own_is_rounded_too():
    rng = np.random.default_rng(1)
    weight, x = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 4), (3, 5)))
    model = torch.nn.Linear(5, 4, bias=False)
    model.weight.data = torch.from_numpy(weight.T.copy())
    a = model.bfloat16(), torch.from_numpy(x).bfloat16()
    comparison = compare(a, (lambda w, x: x @ w, (weight, x)))
    assert comparison.verdict == "EQUAL"
    assert comparison.rounded == ("w", "x")
    port = functools.partial(lambda w, x: x @ w, jnp.asarray(weight))
    for b in ((port, x), (lambda x: x @ weight, x)):  # bound; found outside
        assert compare(a, b).verdict == "EQUAL"


class Rotary(torch.nn.Module):
    """Turns tokens by frequencies that it made in float32, as transformers does."""

    def __init__(self, base):
        super().__init__()
        self.frequencies: torch.Tensor
        self.register_buffer("frequencies", base ** -(torch.arange(3) / 3), persistent=False)

    def forward(self, x):
        angles = torch.arange(5)[:, None] * self.frequencies
        return x * torch.cat([angles, angles], -1).cos()


@pytest.mark.parametrize(("base", "verdict"), [(1000.0, "EQUAL"), (1001.0, "DIFFERENT")])
def test_constants_that_one_side_has_in_float32_are_compared_with_what_they_were_rounded_from(
    base, verdict
):
    def port(x):
        angles = jnp.arange(5)[:, None] / 1000.0 ** (jnp.arange(3) / 3)
        return jnp.concatenate([x[:, :3] * jnp.cos(angles), x[:, 3:] * jnp.cos(angles)], -1)

    x = np.random.default_rng(3).normal(size=(5, 6))
    comparison = compare((Rotary(base), x), (port, x))
    assert comparison.verdict == verdict
    assert not comparison.notes
    if verdict == "EQUAL":
        assert [each.partition(":")[0] for each in comparison.rounded] == ["test_rounded.py"]
        assert comparison.error < 1e-14


class OneByOne(Rotary):
    """Holds its frequencies in another order, and never all angles in the port's."""

    def forward(self, x):
        angles = torch.arange(5)[:, None] * self.frequencies.flip(0)
        cosines, sines = (f(angles).flip(1) for f in (torch.cos, torch.sin))
        a, b = x.split(3, -1)
        return torch.cat([a * cosines - b * sines, a * sines + b * cosines], -1)


def test_rounded_frequencies_that_are_held_in_another_order_are_the_computed_ones():
    def port(x):
        angles = jnp.arange(5)[:, None] / 1000.0 ** (jnp.arange(3) / 3)
        turned = (x[:, :3] + 1j * x[:, 3:]) * jnp.exp(1j * angles)
        return jnp.concatenate([turned.real, turned.imag], -1)

    x = np.random.default_rng(3).normal(size=(5, 6))
    for base, verdict in ((1000.0, "EQUAL"), (1001.0, "DIFFERENT")):
        found = parity.diff((OneByOne(base), x), (port, x))
        assert (found.verdict, found.forward.error < 1e-14) == (verdict, verdict == "EQUAL")


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        (0.7978845608, "EQUAL"),
        (0.79788456, "EQUAL"),
        (0.7978846, "DIFFERENT"),
        (0.79788457, "DIFFERENT"),
    ],
)
def test_a_number_that_is_written_with_fewer_digits_is_the_same_number(written, verdict):
    def gelu(x):  # transformers' gelu_fast has ten digits of the root of 2 / pi, Megatron eight
        return 0.5 * x * (1 + torch.tanh(x * written * (1 + 0.044715 * x * x)))

    x = np.random.default_rng(3).normal(size=(5, 6))
    found = parity.diff((gelu, torch.from_numpy(x)), (jax.nn.gelu, x))
    assert found.verdict == verdict
    if verdict == "EQUAL":
        assert found.backward.verdict == "EQUAL"
        assert [each.partition(":")[0] for each in found.forward.rounded] == ["test_rounded.py"]
        assert "with fewer digits on one side, and taken as the same: test_rounded.py" in found.to_text()


def test_what_computes_in_float32_is_compared_in_float64():
    def plain(x):
        return jax.nn.softmax(x * 0.1) * (1 / 3)

    def mixed(x):
        return (jax.nn.softmax(x.astype(jnp.float32) * 0.1) * jnp.float32(1 / 3)).astype(x.dtype)

    x = np.random.default_rng(0).normal(size=(3, 5))
    comparison = compare((plain, x), (mixed, x))
    assert comparison.verdict == "EQUAL"
    assert comparison.error < 1e-7


def test_a_module_that_remembers_the_type_of_its_parameters_in_front_of_a_loop():
    """`nnx.Embed` returns float32, which `jax.lax.scan` refuses beside layers in float64."""
    embed = nnx.Embed(11, 6, rngs=nnx.Rngs(0))
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6, 6)), jnp.float32)

    class Model(nnx.Module):
        def __init__(self):
            self.embed, self.weights = embed, nnx.Param(weights)

        def __call__(self, ids):
            layer = lambda x, w: (x + jnp.tanh(x @ w), None)  # noqa: E731
            return jax.lax.scan(layer, self.embed(ids), self.weights[...])[0]

    def unrolled(table, weights, ids):
        x = table[ids]
        for w in weights:
            x = x + jnp.tanh(x @ w)
        return x

    ids = np.arange(8).reshape(2, 4)
    comparison = compare((Model(), ids), (unrolled, (embed.embedding[...], weights, ids)))
    assert (comparison.verdict, comparison.error < 1e-14) == ("EQUAL", True)


class Bfloat16(linen.Module):
    """A perceptron that computes in bfloat16."""

    approximate: bool = True
    factor: float = 1.0

    @linen.compact
    def __call__(self, x):
        x = linen.Dense(7, dtype=jnp.bfloat16, name="wide")(x)
        x = linen.gelu(x, approximate=self.approximate)
        x = x if self.factor == 1 else x * self.factor
        return linen.Dense(3, dtype=jnp.bfloat16, name="narrow")(x)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [({}, ""), ({"approximate": False}, "activation"), ({"factor": 1.01}, "one scale too many")],
    ids=["clean", "activation", "factor"],
)
def test_what_computes_in_bfloat16_hides_no_fault(wrong, cause):
    rng = np.random.default_rng(5)
    weights = {
        name: {
            "kernel": rng.normal(size=shape).astype("f4"),
            "bias": rng.normal(size=shape[1:]).astype("f4"),
        }
        for name, shape in {"wide": (5, 7), "narrow": (7, 3)}.items()
    }
    wide, narrow = torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)
    for layer, held in ((wide, weights["wide"]), (narrow, weights["narrow"])):
        layer.weight.data = torch.from_numpy(held["kernel"].T.copy())
        layer.bias.data = torch.from_numpy(held["bias"])
    model = torch.nn.Sequential(wide, torch.nn.GELU(approximate="tanh"), narrow)
    x = rng.normal(size=(4, 5)).astype("f4")
    comparison = compare((model, torch.from_numpy(x)), (Bfloat16(**wrong), {"params": weights}, x))
    assert [place.cause for place in comparison.places] == ([cause] if cause else [])
    assert comparison.verdict == ("DIFFERENT" if cause else "EQUAL")
    assert not comparison.notes
    assert cause or comparison.error < 1e-14


def test_weights_that_were_merged_in_float32_are_those_of_their_parts():
    """An adapter that is merged into its weights, as everybody does; with the wrong factor it is
    another."""
    rng = np.random.default_rng(6)
    w, down, up = (rng.normal(size=shape).astype("f4") for shape in ((6, 5), (6, 2), (2, 5)))
    x = rng.normal(size=(4, 6))
    apart = (lambda w, down, up, x: x @ w + x @ down @ up * 4.0, (w, down, up, x))
    for factor, verdict in ((4.0, "EQUAL"), (4.001, "DIFFERENT")):
        merged = (w.astype("f8") + down.astype("f8") @ up * factor).astype("f4")
        comparison = compare(apart, (jax.tree_util.Partial(lambda w, x: x @ w, merged), x))
        assert comparison.verdict == verdict
        assert len(comparison.notes) == (verdict == "EQUAL")


def test_a_scale_in_a_smaller_type_is_the_product_of_its_roots():
    """Logits scaled, or divided, by a number that was computed in the type; or queries and keys by its
    root."""
    rng = np.random.default_rng(7)
    q, k = (rng.normal(size=(3, 8)).astype("f4") for _ in "qk")
    roots = (lambda q, k: (q * 8**-0.25) @ (k * 8**-0.25).T, (q, k))

    def said(number, dtype, operator=operator.mul):
        def whole(q, k):
            return operator((q @ k.T).astype(dtype), jnp.asarray(number, dtype)).astype(q.dtype)

        comparison = compare(roots, (whole, (q, k)))
        return comparison.verdict, len(comparison.notes), comparison.error < 1e-15

    assert said(0.35355338, "float32") == ("EQUAL", 0, True)
    assert said(2.828427, "float32", operator.truediv) == ("EQUAL", 0, True)
    assert said(0.3535, "float32") == ("DIFFERENT", 0, False)
    for scale in (8**-0.5, 0.353):  # in bfloat16 they are the same number
        assert said(scale, "bfloat16") == ("EQUAL", 0, True)
    assert said(8**0.5, "bfloat16", operator.truediv) == ("EQUAL", 0, True)
    for scale in (0.35, 0.356):
        assert said(scale, "bfloat16") == ("DIFFERENT", 0, False)


def turns_in_torch(places, w, x):
    """Two layers that turn pairs by angles, as timm and transformers compute them: from float32."""
    angles = (
        2 * torch.pi * torch.tensor(places, dtype=torch.float32)[:, None] / torch.tensor([1.0, 10.0])
    )
    sines, cosines = torch.sin(angles), torch.cos(angles)
    for _ in range(2):
        a, b = (x @ w).split(2, -1)
        x = torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1)
    return x


def turns_in_jax(places, w, x, wrong=0.0):
    """The same beside tables that numpy made in float32."""
    periods = np.float32([1.0, 10.0])
    angles = np.float32(2 * np.pi) * np.asarray(places, np.float32)[:, None] / periods
    for _ in range(2):
        sines, cosines = (jnp.asarray(f(angles) + np.float32(wrong), x.dtype) for f in (np.sin, np.cos))
        a, b = jnp.split(x @ w, 2, -1)
        x = jnp.concatenate([a * cosines - b * sines, b * cosines + a * sines], -1)
    return x


@pytest.mark.parametrize("places", [(0.1, -0.3, 0.7), (0.5, -0.5, 0.5)], ids=["any angle", "pi"])
def test_tables_that_numpy_made_in_float32_are_those_that_torch_computes(places):
    rng = np.random.default_rng(3)
    w, x = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 4), (3, 4)))
    a = functools.partial(turns_in_torch, places), (torch.from_numpy(w), torch.from_numpy(x))
    found = parity.diff(a, (functools.partial(turns_in_jax, places), (w, x)))
    assert (found.verdict, found.backward.verdict) == ("EQUAL", "EQUAL")
    assert max(found.forward.error, found.backward.error) < 1e-14
    for wrong in (1e-5, -1e-5):
        other = functools.partial(turns_in_jax, places, wrong=wrong), (w, x)
        assert parity.diff(a, other).verdict == "DIFFERENT"


def test_a_result_of_several_ends_no_trial():
    x = np.ones((3, 4), np.float32)
    program = record((lambda x: jnp.concatenate(jnp.split(x * 2, 2, -1)[::-1], -1), x), "A")
    (split,) = (op.index for op in program.operations if op.name == "split" and op.mark is None)
    assert exchange.rerun(Region(program, split, [split])) is None
