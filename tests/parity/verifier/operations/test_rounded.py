"""What one program holds or computes in fewer bits is compared with what it was rounded from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from parity.verifier.operations import compare
from tests.support import operations_models as models


def test_bfloat16_weights_are_compared_with_those_they_were_rounded_from():
    wide, _, x = models.torch_model()
    model, _, _ = models.torch_model()
    found = compare((wide, x), (model.bfloat16(), torch.from_numpy(x).bfloat16()))
    assert found.verdict == "EQUAL"
    assert len(found.rounded) > 10
    assert not model.training
    assert model.head.weight.dtype == torch.bfloat16


def test_a_weight_that_is_an_argument_of_its_own_is_rounded_too():
    rng = np.random.default_rng(1)
    weight, x = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 4), (3, 5)))
    model = torch.nn.Linear(5, 4, bias=False)
    model.weight.data = torch.from_numpy(weight.T.copy())
    a = model.bfloat16(), torch.from_numpy(x).bfloat16()
    found = compare(a, (lambda w, x: x @ w, (weight, x)))
    assert found.verdict == "EQUAL"
    assert found.rounded == ("w", "x")
    port = functools.partial(lambda w, x: x @ w, jnp.asarray(weight))
    for b in ((port, x), (lambda x: x @ weight, x)):  # bound; found outside
        assert compare(a, b).verdict == "EQUAL"


class Rotary(torch.nn.Module):
    """Turns tokens by frequencies that it made in float32, as transformers does."""

    def __init__(self, base):
        super().__init__()
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
    found = compare((Rotary(base), x), (port, x))
    assert found.verdict == verdict
    assert not found.notes
    if verdict == "EQUAL":
        assert [each.partition(":")[0] for each in found.rounded] == ["test_rounded.py"]
        assert found.error < 1e-14


def test_what_computes_in_float32_is_compared_in_float64():
    def plain(x):
        return jax.nn.softmax(x * 0.1) * (1 / 3)

    def mixed(x):
        return (jax.nn.softmax(x.astype(jnp.float32) * 0.1) * jnp.float32(1 / 3)).astype(x.dtype)

    x = np.random.default_rng(0).normal(size=(3, 5))
    found = compare((plain, x), (mixed, x))
    assert found.verdict == "EQUAL"
    assert found.error < 1e-7


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
    found = compare((Model(), ids), (unrolled, (embed.embedding[...], weights, ids)))
    assert (found.verdict, found.error < 1e-14) == ("EQUAL", True)
