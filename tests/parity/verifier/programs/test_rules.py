"""Rules by which programs are run again, and lines of those that a program gives for its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.verifier.locate import compare

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 5))


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


def texts(comparison):
    return [line.text for place in comparison.places for line in place.b.lines]


def test_a_wrong_rule_is_placed_on_its_own_line(monkeypatch):
    side = of_torch, torch.from_numpy(X)
    assert compare(side, of_jax(True), gradients=True).verdict == "EQUAL"
    comparison = compare(side, of_jax(False), gradients=True)
    assert comparison.verdict == "DIFFERENT"
    assert texts(comparison)[0].endswith("# here")
    monkeypatch.setattr(Gate, "wrong", True)
    comparison = compare(of_jax(True), side, gradients=True)
    assert comparison.verdict == "DIFFERENT"
    assert texts(comparison)[0].endswith("# here, too")


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


def test_memory_is_read_by_strides_where_a_program_that_demands_float32_runs_again_in_float64():
    weight, x = (RNG.normal(size=size).astype(np.float32) for size in ((3, 4), (2, 3)))

    def demanding(w, x):
        assert w.dtype == x.dtype == torch.float32
        last = torch.exp(w).as_strided((3, 2), (1, 3), 3)  # columns 1 and 2, one behind the other
        return x @ last * torch.empty(2).copy_(torch.arange(2, dtype=torch.float32))

    def port(w, x):
        return x @ jnp.exp(w)[:, 1:3] * jnp.arange(2)

    columns = torch.from_numpy(weight.T.copy()).T
    comparison = compare((demanding, (columns, torch.from_numpy(x))), (port, (weight, x)))
    assert comparison.verdict == "EQUAL"
    assert "refuses float64" in comparison.remarks[0]
    assert comparison.error < 1e-15


def test_rows_that_are_added_to_by_a_program_that_demands_float32():
    rows, x = np.array([[2], [0], [2]]), RNG.normal(size=(3, 4)).astype(np.float32)

    def demanding(x):
        assert x.dtype == jnp.float32
        return jax.grad(lambda x: jnp.sin(jnp.take_along_axis(x, rows, 1)).sum())(x)

    def port(x):
        filled = torch.zeros_like(x)
        return filled.scatter_add(
            1, torch.from_numpy(rows), torch.cos(x.gather(1, torch.from_numpy(rows)))
        )

    comparison = compare((port, torch.from_numpy(x)), (demanding, x))
    assert comparison.verdict == "EQUAL"
    assert "refuses float64" in comparison.remarks[0]
    assert comparison.error < 1e-15


def test_a_sum_of_small_whole_numbers_has_the_bits_that_it_asks_for():
    numbers = RNG.integers(-128, 128, (5, 4)).astype(np.int8)

    def product(x, dtype):
        over = (((1,), (0,)), ((), ()))
        whole = jnp.round(x * 50).astype(jnp.int8).astype(dtype)
        return jax.lax.dot_general(
            whole, numbers.astype(dtype), over, preferred_element_type=jnp.int32
        ).astype(jnp.float32)

    sides = ((lambda x, d=dtype: product(x, d), X) for dtype in (np.int8, np.int32))
    assert compare(*sides).verdict == "EQUAL"
