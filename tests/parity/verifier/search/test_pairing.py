"""Which outputs are compared with which, and in which layouts they may be the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.locate import compare
from parity.verifier.search.layouts import conventional

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("given", "shape", "axes"),
    [
        ((2, 3, 6, 6), (2, 6, 6, 3), [(0, 2, 3, 1)]),
        ((2, 6, 6, 3), (2, 3, 6, 6), [(0, 3, 1, 2)]),
        ((2, 5, 3), (2, 3, 5), [(0, 2, 1)]),
        ((6, 6, 3), (6, 3, 6), [(0, 2, 1)]),  # the first axis is the batch
        ((3, 6, 5), (6, 5, 3), [(1, 2, 0)]),  # there is none
        ((1, 6, 6, 5), (1, 6, 5, 6), [(0, 2, 3, 1)]),  # six channels
        ((2, 3, 4, 4, 4), (2, 4, 4, 4, 3), [(0, 2, 3, 4, 1)]),
        ((2, 5, 6, 3), (2, 6, 5, 3), []),
        ((2, 6, 6, 3), (2, 6, 6, 3), [(0, 1, 2, 3)]),
        ((4, 3), (3, 4), [(1, 0)]),
        ((2, 3, 1), (2, 3), [(2, 0, 1)]),
        ((4, 3), (2, 3), []),
    ],
)
def test_the_layouts_of_outputs_keep_the_order_of_all_but_the_channels(given, shape, axes):
    assert [each.axes for each in conventional(given, shape)] == axes
    assert all(each.of(np.zeros(given)).shape == shape for each in conventional(given, shape))


@pytest.mark.parametrize(("axes", "cause"), [((0, 1, 2, 3), ""), ((0, 2, 1, 3), "transposed")])
@pytest.mark.parametrize("wide", [4, 5])
def test_a_map_with_height_and_width_exchanged_is_another(axes, cause, wide):
    x = RNG.normal(size=(2, 4, wide, 3))
    comparison = compare(
        (lambda x: torch.relu(x.permute(0, 3, 1, 2)) * 2, torch.from_numpy(x)),
        (lambda x: jax.nn.relu(x).transpose(axes) * 2, x),
    )
    assert [place.cause for place in comparison.places] == ([cause] if cause else [])
    assert comparison.verdict == ("DIFFERENT" if cause else "EQUAL")


def test_a_step_leaves_its_parameters_where_they_lie():
    """A square kernel lies transposed in the other framework, before a step as after it."""
    weight, bias, x = (RNG.normal(size=shape) for shape in ((4, 4), 4, (3, 4)))

    def original(model, x):
        model(x).square().mean().backward()
        with torch.no_grad():
            return {"weight": model.weight - 0.1 * model.weight.grad}

    def step(turned):
        def port(held, x):
            def loss(held):
                return jnp.mean((x @ held["kernel"] + held["bias"]) ** 2)

            gradient = jax.grad(loss)(held)["kernel"]
            return {"kernel": held["kernel"] - 0.1 * (gradient.T if turned else gradient)}

        return port, ({"kernel": weight.T, "bias": bias}, x)

    model = torch.nn.Linear(4, 4, dtype=torch.float64)
    model.weight.data, model.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
    of_a = original, (model, torch.from_numpy(x))
    assert compare(of_a, step(False), gradients=True).verdict == "EQUAL"
    assert compare(of_a, step(True), gradients=True).verdict == "DIFFERENT"


def test_outputs_of_one_size_are_paired_by_what_they_are_made_of():
    """Under other names and in another order; with a fault, no value of one is the other's."""
    first, second, rate = RNG.normal(size=6), 5 + RNG.normal(size=6), np.ones(6)

    def original(held, k):
        return {"alpha": held["u"] - 0.1 * k, "beta": held["v"] - 0.1 * k}

    def port(factor):
        def step(held, k):
            return held["v"] - factor * k, held["u"] - factor * k

        return step, ({"u": first, "v": second}, rate)

    held = {"u": torch.from_numpy(first), "v": torch.from_numpy(second)}
    a = original, (held, torch.from_numpy(rate))
    assert compare(a, port(0.1)).verdict == "EQUAL"
    (place,) = compare(a, port(0.2)).places
    assert (place.cause, place.message) == ("number", "0.2 where A has 0.1")


def test_names_come_before_values_and_what_nothing_tells_is_paired_in_order():
    x = RNG.normal(size=(2, 5))
    a = (lambda x: (torch.tanh(x), torch.exp(x))), torch.from_numpy(x)
    assert compare(a, (lambda x: (jnp.exp(x), jnp.tanh(x)), x)).verdict == "DIFFERENT"
    assert compare(a, (lambda x: {"e": jnp.exp(x), "t": jnp.tanh(x)}, x)).verdict == "EQUAL"
    comparison = compare(a, (lambda x: {"p": jnp.tanh(2 * x), "q": jnp.exp(2 * x)}, x))
    assert {place.cause for place in comparison.places} == {"one scale too many"}
