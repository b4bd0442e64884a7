"""Gradients that leave a JAX program together are those that would leave it one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import parity
from parity.measure.traces import tap_jax

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


class Stopped(nnx.Module):
    """Three layers, and places at which the gradient ends."""

    def __init__(self, stop, rngs):
        self.stop = stop
        self.layers = nnx.List([nnx.Linear(5, 5, rngs=rngs) for _ in range(3)])

    def __call__(self, x, scale=1.0):
        y = x
        for i, layer in enumerate(self.layers):
            y = jnp.tanh(layer(y)) * scale
            y = jax.lax.stop_gradient(y) if i == self.stop else y
            y = y.astype(jnp.bfloat16).astype(jnp.float32) if i == 0 else y
        return y


def _total(net, x):
    return (net(x) ** 2).sum()


def _twice(net, x):
    return _total(net, x) + _total(net, 2 * x)


def _both_ways(net, x):
    """A backward pass that is run twice."""
    graph, state = nnx.split(net)
    y, back = jax.vjp(lambda state: nnx.merge(graph, state)(x), state)
    return back(y), back(y)


def _each_alone(net, x):
    graph, state = nnx.split(net)
    loss = lambda state, x: _total(nnx.merge(graph, state), x[None])  # noqa: E731
    return jax.vmap(jax.grad(loss), (None, 0))(state, x)


def _of_the_images(net, x):
    return jax.grad(lambda x: _total(net, x))(x)


def _compiled_within(net, x):
    graph, state = nnx.split(net)
    forward = jax.jit(lambda state: _total(nnx.merge(graph, state), x))
    return jax.grad(forward)(state)


def _of_a_gradient(net, x):
    """The derivative of a gradient's norm."""
    graph, state = nnx.split(net)
    inner = lambda state, x: jax.grad(lambda x: _total(nnx.merge(graph, state), x))(x)  # noqa: E731
    return jax.grad(lambda state: (inner(state, x) ** 2).sum())(state)


@pytest.mark.parametrize("stop", [None, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "program",
    [
        nnx.grad(_total),
        nnx.jit(nnx.grad(_total)),
        nnx.jit(nnx.grad(_twice)),
        nnx.jit(_both_ways),
        _each_alone,
        _of_the_images,
        _compiled_within,
        _of_a_gradient,
    ],
)
def test_gradients_together_are_those_that_come_alone(tmp_path, monkeypatch, program, stop):
    traces = []
    for alone in (False, True):
        if alone:
            monkeypatch.setattr(tap_jax, "is_differentiated", lambda x: False)
        net = Stopped(stop, nnx.Rngs(1))
        with parity.record(tmp_path / f"{alone}.trace", net) as trace, trace.step():
            result = program(net, jnp.asarray(X))
        traces.append((parity.Trace(tmp_path / f"{alone}.trace"), jax.tree.leaves(result)))
    (together, got), (alone, expected) = traces
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    sites = [{event.site for event in trace.events} for trace in (together, alone)]
    # of a derivative of a derivative, the inner one may be followed further than it has to be
    assert sites[0] >= sites[1] if program is _of_a_gradient else sites[0] == sites[1]
    for event in alone.events:
        np.testing.assert_array_equal(together.read(event.site), alone.read(event))
