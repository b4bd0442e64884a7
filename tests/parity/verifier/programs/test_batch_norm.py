"""A step of training through a batch norm: the loss, every gradient and the running statistics."""

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn

from evidence.families.drawn import channels_last, drawn, given, kernel, normal, weights
from parity.verifier.locate import compare

IMAGES = normal(3, 5, 7, 6)
MANY = 3 * 7 * 6  # numbers of a channel


class Original(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(5, 7, 3, padding=1, bias=False), nn.BatchNorm2d(7)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def step_of_torch(model, x):
    model.train()
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    running = {"mean": model.norm.running_mean, "var": model.norm.running_var}
    return {"loss": loss, "gradients": gradients, "running": running}


class Port(nnx.Module):
    def __init__(self, w):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(5, 7, (3, 3), padding=1, use_bias=False,
                             kernel_init=given(kernel(w["conv.weight"])), rngs=rngs)  # fmt: skip
        self.norm = nnx.BatchNorm(7, momentum=0.9, epsilon=1e-5, scale_init=given(w["norm.weight"]),
                                  bias_init=given(w["norm.bias"]), rngs=rngs)  # fmt: skip
        self.norm.mean[...] = jnp.asarray(w["norm.running_mean"])
        self.norm.var[...] = jnp.asarray(w["norm.running_var"])
        self.head = nnx.Linear(7, 3, kernel_init=given(w["head.weight"].T),
                               bias_init=given(w["head.bias"]), rngs=rngs)  # fmt: skip

    def __call__(self, x):
        return self.head(nnx.relu(self.norm(self.conv(x))).mean((1, 2)))


def pair(*, unbiased):
    model = drawn(Original())
    graph, params, rest = nnx.split(Port(weights(model)), nnx.Param, ...)

    def step(params, rest, x):
        def loss(params):
            net = nnx.merge(graph, params, rest, copy=True)
            old = net.norm.var[...]
            value = jnp.square(net(x)).mean()
            if unbiased:
                net.norm.var[...] = 0.9 * old + (net.norm.var[...] - 0.9 * old) * (MANY / (MANY - 1))
            return value, nnx.to_pure_dict(nnx.state(net, nnx.BatchStat))["norm"]

        (value, running), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        return {"loss": value, "gradients": nnx.to_pure_dict(gradients), "running": running}

    return (step_of_torch, (model, IMAGES)), (step, (params, rest, channels_last(IMAGES)))


def test_a_step_through_a_batch_norm_is_equal():
    comparison = compare(*pair(unbiased=True), gradients=True)
    assert comparison.verdict == "EQUAL", comparison.to_text()
    assert comparison.counts.outputs == 8
    assert comparison.error < 1e-13


def test_the_running_variance_of_flax_is_that_of_the_batch_itself():
    comparison = compare(*pair(unbiased=False), gradients=True)
    (place,) = comparison.places  # torch keeps that of a sample, over n - 1
    assert place.cause == "scale left out"
    assert "1.008" in place.message
    assert "self.norm(self.conv(x))" in place.b.lines[0].text
