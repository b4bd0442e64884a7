"""Models as they are before training: all norms hold ones and zeros, all biases zeros. Gradients alone
tell which parameter of the one is which of the other, and a gradient that is zero in theory is no
difference, whatever is left of it."""

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from parity.verifier.compare import compare
from parity.verifier.programs.shared import sharing
from parity.verifier.programs.sides import record

WIDTH, HEADS, DEPTH, TOKENS = 12, 3, 3, 5
X = np.random.default_rng(0).normal(size=(2, TOKENS, WIDTH)).astype(np.float32)
NAMES = {"norm1": WIDTH, "qkv": 3 * WIDTH, "proj": WIDTH, "norm2": WIDTH, "fc1": 19, "fc2": WIDTH}


class Block(nn.Module):
    """A block with one projection for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, 1e-6), nn.LayerNorm(WIDTH, 1e-6)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 19), nn.Linear(19, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


def reference(std=0.02):
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(DEPTH)), nn.LayerNorm(WIDTH, 1e-6))
    for name, each in model.named_parameters():
        if name.endswith("weight") and each.ndim == 2:
            nn.init.normal_(each, std=std)
        elif name.endswith("bias"):
            nn.init.zeros_(each)
    return model.eval(), X


def dense(layer):
    return {"kernel": layer.weight.detach().numpy().T, "bias": layer.bias.detach().numpy()}


def norm(layer):
    return {"scale": layer.weight.detach().numpy(), "bias": layer.bias.detach().numpy()}


class LinenBlock(linen.Module):
    """The same, with norms that Linen names, and a layer each for queries, keys and values."""

    fault: str = ""

    @linen.compact
    def __call__(self, x, _=None):
        y = linen.LayerNorm(epsilon=1e-6)(x)
        q, k, v = (linen.DenseGeneral((HEADS, WIDTH // HEADS), name=n)(y) for n in "qkv")
        y = linen.dot_product_attention(q, k, v)
        x = x + linen.Dense(WIDTH, name="proj")(y.reshape(x.shape))
        y = linen.LayerNorm(epsilon=1e-6)(x)
        y = (Detached if self.fault == "detached" else linen.Dense)(19, name="fc1")(y)
        narrow = linen.Dense(WIDTH, use_bias=self.fault != "never added", name="fc2")
        return x + narrow(linen.gelu(y, approximate=False)), None


class Detached(linen.Module):
    """A layer through whose bias no gradient passes."""

    features: int

    @linen.compact
    def __call__(self, x):
        kernel = self.param("kernel", linen.initializers.zeros, (x.shape[-1], self.features))
        bias = self.param("bias", linen.initializers.zeros, (self.features,))
        return x @ kernel + jax.lax.stop_gradient(bias)


class Stacked(linen.Module):
    fault: str = ""

    @linen.compact
    def __call__(self, x):
        scanned = linen.scan(
            linen.remat(LinenBlock),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=DEPTH,
        )
        x, _ = scanned(self.fault, name="blocks")(x, None)
        return linen.LayerNorm(epsilon=1e-6, name="norm")(x)


class Listed(linen.Module):
    fault: str = ""

    @linen.compact
    def __call__(self, x):
        for i in range(DEPTH):
            x, _ = LinenBlock(self.fault, name=f"encoderblock_{i}")(x)
        return linen.LayerNorm(epsilon=1e-6)(x)


def port(model, *, stacked=False, fault=""):
    blocks = []
    for each in model[:DEPTH]:
        params = {"LayerNorm_0": norm(each.norm1), "LayerNorm_1": norm(each.norm2)}
        params |= {name: dense(getattr(each, name)) for name in ("proj", "fc1", "fc2")}
        whole = dense(each.qkv)
        for i, name in enumerate("qkv"):
            rows = slice(i * WIDTH, (i + 1) * WIDTH)
            params[name] = {
                "kernel": whole["kernel"][:, rows].reshape(WIDTH, HEADS, -1),
                "bias": whole["bias"][rows].reshape(HEADS, -1),
            }
        blocks.append(params)
    if stacked:
        params = {
            "blocks": jax.tree.map(lambda *each: jnp.stack(each), *blocks),
            "norm": norm(model[-1]),
        }
        return Stacked(fault), {"params": params}, X
    params = {f"encoderblock_{i}": each for i, each in enumerate(blocks)}
    return Listed(fault), {"params": params | {"LayerNorm_0": norm(model[-1])}}, X


@pytest.mark.parametrize("stacked", [False, True], ids=["listed", "stacked"])
@pytest.mark.parametrize("std", [0.02, 0.3])
def test_a_right_port_is_equal_with_all_gradients(stacked, std):
    model, _ = reference(std)
    found = compare((model, X), port(model, stacked=stacked))
    assert (found.verdict, found.places) == ("EQUAL", ())
    number = len(list(model.parameters()))
    assert f"gradients of {number} of {number} parameters and 1 of 1 input (" in found.summary()


def test_a_key_bias_is_said_to_be_zero_in_theory():
    model, _ = reference()
    first = port(model)
    found = compare(first, first)
    assert found.verdict == "EQUAL"
    said = found.backward.counts.zero_in_theory
    assert [each.endswith("k.bias") for each in said] == [True] * DEPTH
    assert "zero in theory, and nothing but round-off on both sides: " in found.to_text()


@pytest.mark.parametrize("stacked", [False, True], ids=["listed", "stacked"])
@pytest.mark.parametrize("fault", ["detached", "never added"])
def test_a_bias_of_zeros_without_gradient_is_a_difference(stacked, fault):
    model, _ = reference()
    found = compare((model, X), port(model, stacked=stacked, fault=fault))
    assert found.verdict == "DIFFERENT"
    assert found.forward.verdict == "EQUAL"


def test_what_moves_by_a_choice_is_no_noise():
    """Of two experts that are equally good another is chosen, which is no rounding of what it yields."""
    rng = np.random.default_rng(1)
    weight, x = rng.normal(size=(2, 6, 6)), rng.normal(size=(4, 6))

    def function(factor):
        def run(w, x):
            scores = jnp.stack([x.sum(-1), (x * 3).sum(-1) / 3])
            return jnp.take_along_axis(jnp.stack([x @ w[0], x @ w[1] * factor]),
                                       scores.argmax(0)[None, :, None], 0)  # fmt: skip

        return run, (weight, x)

    assert compare(function(1.0), function(1.0)).verdict == "EQUAL"
    assert compare(function(1.0), function(1.5)).verdict == "DIFFERENT"


class Half(linen.Module):
    """Layers that compute in bfloat16, where the root of two and the derivative of erf are rounded."""

    factor: float = 1.0

    @linen.compact
    def __call__(self, x):
        y = linen.Dense(19, dtype=jnp.bfloat16, name="fc1")(x) * self.factor
        y = linen.gelu(y, approximate=False)
        return linen.Dense(WIDTH, dtype=jnp.bfloat16, name="fc2")(y)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "EQUAL"), (1.01, "DIFFERENT")])
def test_exact_gelu_in_bfloat16_is_the_same_backward_too(factor, verdict):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, 19), nn.GELU(), nn.Linear(19, WIDTH))
    params = {"fc1": dense(model[0]), "fc2": dense(model[2])}
    found = compare((model.eval(), X), (Half(factor), {"params": params}, X))
    assert found.verdict == verdict
    assert verdict == "DIFFERENT" or found.backward.verdict == "EQUAL"


class Dropping(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.drop = model, nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.model(x))


def test_a_dropout_that_is_on_as_given_is_said_beside_the_verdict():
    model, _ = reference()
    found = compare((model, X), (Dropping(model).train(), X))
    first = found.to_text().splitlines()[0]
    assert first.startswith("EQUAL in evaluation mode; B's dropout (0.5, ")
    assert " is on as given: 1 of 1 output compared (" in first


def test_equal_weights_lie_in_one_memory():
    weight = np.random.default_rng(2).normal(size=(300, 260))
    layer = nn.Linear(260, 300, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
    held = layer.weight.detach().numpy()
    first = record((layer, X[:, :, :1].repeat(260, -1)), "A")
    with sharing(first):
        second = record((lambda w, x: x @ w, (held.T, X[:, :, :1].repeat(260, -1))), "B")
    leaves = [
        next(p.cache[op.index] for op in p.operations if op.run is None and op.size == held.size)
        for p in (first, second)
    ]
    assert np.shares_memory(*leaves)
    np.testing.assert_array_equal(leaves[0].T, leaves[1])


@pytest.mark.parametrize("shape", [(2, 3, 6), (6, 6), (2, 5, 6)])
def test_a_square_weight_is_turned_once(shape):
    """Its gradient is brought into the other's layout, also where something else has as many numbers."""
    torch.manual_seed(2)
    first, second = (nn.Linear(6, 6, bias=False) for _ in range(2))
    model, x = (
        nn.Sequential(first, nn.Tanh(), second, nn.Tanh()),
        np.random.default_rng(3).normal(size=shape),
    )
    params = [each.weight.detach().numpy().T for each in (first, second)]
    found = compare((model, x), (lambda p, x: jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]), (params, x)))
    assert (found.verdict, found.places) == ("EQUAL", ())


class Masked(nn.Module):
    """A head of zeros over a softmax, and a mask token of zeros that evaluation does not read."""

    def __init__(self):
        super().__init__()
        self.mask_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.first, self.head = nn.Linear(WIDTH, 7), nn.Linear(7, 4)
        for each in (self.first.bias, self.head.weight, self.head.bias):
            nn.init.zeros_(each)

    def forward(self, x):
        return self.head(self.first(x).softmax(-1))


@pytest.mark.parametrize(("axis", "verdict"), [(-1, "EQUAL"), (1, "DIFFERENT")])
def test_zeros_that_reach_no_output_leave_no_gradient_out(axis, verdict):
    """All zeros together are as many as B's without them."""
    torch.manual_seed(2)
    model = Masked().eval()
    layers = {name: dense(getattr(model, name)) for name in ("first", "head")}

    def function(layers, x):
        y = x @ layers["first"]["kernel"] + layers["first"]["bias"]
        y = jax.nn.softmax(y, axis)
        return y @ layers["head"]["kernel"] + layers["head"]["bias"]

    found = compare((model, X), (function, (layers, X)))
    assert found.verdict == verdict
    assert "gradients of 4 of 4 parameters and 1 of 1 input (" in found.summary()
    assert found.backward.counts.unread == ("mask_token",)


def test_a_gain_that_no_layer_of_a_stack_reads_is_left_out():
    """What slices the stack leads to no output."""
    gains = np.ones((2, WIDTH), np.float32)

    def function(skipped):
        def layer(x, gain):
            y = x - x.mean(-1, keepdims=True)
            y = y / jnp.sqrt((y**2).mean(-1, keepdims=True) + 1e-6)
            return x + jnp.tanh(y if skipped else y * gain), None

        return lambda gains, x: jax.lax.scan(layer, x, gains)[0], (gains, X)

    found = compare(function(False), function(True))
    assert found.verdict == "DIFFERENT"
    assert {place.cause for place in found.backward.places} == {"gain left out"}
