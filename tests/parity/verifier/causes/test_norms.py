"""Norms of a branch's input, of its output or of the sum in two programs, written in many ways."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.verifier.causes.residual_norms import residual_norms
from parity.verifier.locate import compare
from parity.verifier.programs.sides import record

X = np.random.default_rng(1).standard_normal((2, 7, 16))


def encoder(norm_first, **options):
    torch.manual_seed(0)
    options = {"batch_first": True, "dropout": 0.0, **options}
    layer = nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, **options)
    model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def compared(a, b):
    x = torch.from_numpy(X)
    return compare((a, x), (b, x))


@pytest.mark.parametrize(
    ("pre", "cause"), [(True, "post-norm for pre-norm"), (False, "pre-norm for post-norm")]
)
def test_layers_of_pytorch(pre, cause):
    """Which in evaluation compute all of themselves in one operation, unless asked not to."""
    comparison = compared(encoder(pre), encoder(not pre))
    (place,) = comparison.places
    assert (place.cause, place.times) == (cause, 4)
    lines = [
        f"{line.file.rpartition('/')[2]} {line.text}"
        for side in (place.a, place.b)
        for line in side.lines
    ]
    assert "transformer.py x = x + self._sa_block(" in lines
    assert not compared(encoder(pre), encoder(pre)).places
    assert torch.backends.mha.get_fastpath_enabled()


def normed(x, p, how):
    if how == "rms":
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p[0]
    centred = x - x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2
    if how == "fast":
        return centred * (jax.lax.rsqrt(variance + 1e-6) * p[0]) + p[1]
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * p[0] + p[1]


def residuals(p, x, side, how="plain", eps=0.0):
    def branch(x, i):
        return jnp.tanh(x @ p["w"][i] + eps)

    x = x @ p["first"] + p["table"]
    for i in range(3):
        norm = functools.partial(normed, p=p["norm"][i], how=how)
        if side == "pre":
            x = x + branch(norm(x), i)
        elif side == "post":
            x = norm(x + branch(x, i))
        else:
            x = x + norm(branch(x, i))
    return x @ p["head"]


def parameters():
    rng = np.random.default_rng(0)
    shapes = {"first": (16, 16), "table": (7, 16), "w": (3, 16, 16), "norm": (3, 2, 16), "head": (16, 5)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("how", ["plain", "fast", "rms"])
@pytest.mark.parametrize("sides", list(itertools.permutations(["pre", "post", "res-post"], 2)))
def test_plain_functions(how, sides):
    a, b = (functools.partial(residuals, side=side, how=how) for side in sides)
    comparison = compare((a, (parameters(), X)), (b, (parameters(), X)))
    (place,) = comparison.places
    assert place.cause == f"{sides[1]}-norm for {sides[0]}-norm"
    assert place.times == 3


@pytest.mark.parametrize("side", ["pre", "post", "res-post"])
def test_the_other_framework(side):
    """PyTorch with its norms behind the branches, as in Swin V2."""

    def model(p, x):
        x = x @ p["first"] + p["table"]
        for w, (gain, bias) in zip(p["w"], p["norm"], strict=True):
            x = x + nn.functional.layer_norm(torch.tanh(x @ w), (16,), gain, bias, 1e-6)
        return x @ p["head"]

    weights = {name: torch.from_numpy(value) for name, value in parameters().items()}
    b = functools.partial(residuals, side=side)
    places = compare((model, (weights, torch.from_numpy(X))), (b, (parameters(), X))).places
    said = [(place.cause, place.times) for place in places]
    assert said == ([(f"{side}-norm for res-post-norm", 3)] if side != "res-post" else [])


def test_what_else_is_wrong_is_found_behind_it():
    a = functools.partial(residuals, side="pre")
    b = functools.partial(residuals, side="post", eps=0.5)
    comparison = compare((a, (parameters(), X)), (b, (parameters(), X)))
    assert [place.cause for place in comparison.places] == [
        "post-norm for pre-norm",
        "one term too many",
    ]


def test_another_mistake_in_a_norm_is_not_called_so():
    a = functools.partial(residuals, side="post")
    b = functools.partial(residuals, side="post", how="rms")
    comparison = compare((a, (parameters(), X)), (b, (parameters(), X)))
    assert all("pre-norm" not in place.cause for place in comparison.places)


def test_a_stream_that_is_reshaped_between_blocks_is_a_stream():
    """As in Swin: a sum is reshaped, and both a norm and the next sum read what this yields."""

    def maps(p, x):
        for i in range(2):
            x = x + jnp.tanh(normed(x, p["norm"][i], "plain") @ p["w"][i])
            x = x.reshape(2, -1, 16) if x.ndim == 4 else x.reshape(2, 1, 7, 16)
        return x + jnp.tanh(normed(x, p["norm"][2], "plain") @ p["w"][2])

    program = record((maps, (parameters(), X)), "A", gradients=False)
    assert [norm.kind for norm in residual_norms(program)] == ["pre"] * 3
