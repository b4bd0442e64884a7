"""What nobody could see is not certified: no numbers, or zeros on both sides; and what hides is said."""

import jax
import numpy as np
import pytest
import torch

import parity

DRAW = np.random.default_rng(0)
W1, W2, X = DRAW.normal(size=(6, 8)), DRAW.normal(size=(8, 5)), DRAW.normal(size=(2, 6))


class Torch(torch.nn.Module):
    """A layer, GELU by erf, a layer."""

    def __init__(self, w1, w2):
        super().__init__()
        self.w1, self.w2 = (torch.nn.Parameter(torch.from_numpy(each)) for each in (w1, w2))

    def forward(self, x):
        return torch.nn.functional.gelu(x @ self.w1) @ self.w2


def compare(x, w1, w2, exact):
    def port(p, x):
        return jax.nn.gelu(x @ p["w1"], approximate=not exact) @ p["w2"]

    mine = Torch(w1, w2).eval(), torch.from_numpy(x)
    return parity.diff(mine, (port, ({"w1": w1, "w2": w2}, x)))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("x", "w1", "w2", "said"),
    [
        (X, W1 * 0, W2 * 0, "UNCERTIFIED, as all that was compared is zero on both sides"),
        (X[:0], W1, W2, "UNCERTIFIED, as there are no numbers in what was compared"),
        (X, W1 * 0, W2, "zero on both sides, which says nothing: 2 of 3 gradients"),
        (X * 0, W1, W2, "zero on both sides, which says nothing: 2 of 3 gradients"),
        (X * 1e30, W1, W2, "reaches 2e+30, where activations are flat"),
    ],
)
def test_what_hides_a_difference_is_said(x, w1, w2, said, exact):
    compared = compare(x, w1, w2, exact)
    assert said in "\n".join([compared.to_text(), *compared.remarks])
    assert compared.verdict == ("UNCERTIFIED" if said.startswith("UNCERTIFIED") else "EQUAL")
    assert bool(compared.unseen) == (compared.verdict == "UNCERTIFIED")


def test_a_last_layer_of_zeros_hides_nothing_of_the_gradients():
    assert compare(X, W1, W2 * 0, True).verdict == "EQUAL"
    assert compare(X, W1, W2 * 0, False).verdict == "DIFFERENT"


def test_gradients_that_are_the_same_for_any_input_hide_all():
    """Of layers of zeros the last bias has a gradient that is not zero: the weights of the loss."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.GELU(), torch.nn.Linear(4, 3)).double()
    for each in model.parameters():
        each.data.zero_()

    def port(p, x):
        return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]

    names = zip(("w1", "b1", "w2", "b2"), model.parameters(), strict=True)
    mine = model.eval(), torch.from_numpy(X)
    compared = parity.diff(mine, (port, ({n: each.detach().numpy().T for n, each in names}, X)))
    assert compared.backward.counts.unmoved < compared.backward.counts.outputs
    assert compared.verdict == "UNCERTIFIED"
