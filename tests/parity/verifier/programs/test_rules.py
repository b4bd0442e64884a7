"""Lines of the rules that a program gives for its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.verifier.locate import compare

X = np.random.default_rng(4).normal(size=(3, 5))


def of_jax(right):
    @jax.custom_vjp
    def gate(x):
        return x * jax.nn.sigmoid(x)

    def backward(x, g):
        s = jax.nn.sigmoid(x)
        inner = x * s * (1 - s) if right else x * s  # here
        return (g * (s + inner),)

    gate.defvjp(lambda x: (gate(x), x), backward)
    return jax.value_and_grad(lambda x: jnp.mean(gate(x) ** 2)), X


class Gate(torch.autograd.Function):
    """The same with a rule of its own."""

    wrong = False

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        inner = x * s if Gate.wrong else x * s * (1 - s)  # here, too
        return g * (s + inner)


def of_torch(x):
    x = x.clone().requires_grad_()
    loss = (Gate.apply(x) ** 2).mean()
    return loss, torch.autograd.grad(loss, x)[0]


def texts(found):
    return [line.text for place in found.places for line in place.b.lines]


def test_a_wrong_rule_is_placed_on_its_own_line(monkeypatch):
    side = of_torch, torch.from_numpy(X)
    assert compare(side, of_jax(True), gradients=True).verdict == "EQUAL"
    found = compare(side, of_jax(False), gradients=True)
    assert found.verdict == "DIFFERENT"
    assert texts(found)[0].endswith("# here")
    monkeypatch.setattr(Gate, "wrong", True)
    found = compare(of_jax(True), side, gradients=True)
    assert found.verdict == "DIFFERENT"
    assert texts(found)[0].endswith("# here, too")


def test_a_gradient_that_ends_is_placed_where_it_ends():
    def straight(x):
        x = x.clone().requires_grad_()
        loss = ((x + (x.round() - x).detach()) ** 2).sum()
        return loss, torch.autograd.grad(loss, x)[0]

    def ended(x):
        rounded = jnp.round(x)
        return (rounded**2).sum()

    (place,) = compare(
        (straight, torch.from_numpy(X)), (jax.value_and_grad(ended), X), gradients=True
    ).places
    assert "rounded = jnp.round(x)" in [line.text for line in place.b.lines]
