"""Programs that write into what they are given: compared as others, and the user's arrays stay."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.verifier.programs.sides import record

X = np.random.default_rng(0).standard_normal((3, 4))


def _double(x):
    x.mul_(2)
    return x


class Relu(nn.Module):
    """A model that begins by writing into its input."""

    def __init__(self, inplace):
        super().__init__()
        self.layers = nn.Sequential(nn.ReLU(inplace=inplace), nn.Linear(4, 2)).double()
        for each in self.parameters():
            each.data = torch.linspace(-1, 1, each.numel(), dtype=torch.float64).reshape(each.shape)

    def forward(self, x):
        return self.layers(x)


class Counting(nn.Module):
    """A model that writes into its own buffer."""

    calls: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


COUNTING, HELD, TABLE = Counting(), Relu(inplace=True), torch.ones(4, dtype=torch.float64)
PAIRS = {
    "input": (_double, lambda x: jnp.multiply(x, 2)),
    "integers": (lambda x: x * torch.arange(4).add_(1), lambda x: x * jnp.arange(1, 5)),
    "activation": (lambda x: nn.functional.relu_(x) * x, lambda x: jnp.maximum(x, 0) ** 2),
    "layer": (Relu(inplace=True), Relu(inplace=False)),
    "held layer": (lambda x: HELD(x), Relu(inplace=False)),
    "buffer": (COUNTING, lambda x: x * 1),
    "held buffer": (lambda x: COUNTING(x), lambda x: x * 1),
}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_programs_that_write_are_compared_forward_and_backward(pair, shared):
    given = X.copy()
    of_a = torch.from_numpy(given)
    of_b = given if shared else X.copy()
    of_b = torch.from_numpy(of_b) if isinstance(pair[1], nn.Module) else of_b
    for sides in (((pair[0], of_a), (pair[1], of_b)), ((pair[1], of_b), (pair[0], of_a))):
        found = parity.diff(*sides)
        assert found.verdict == "EQUAL"
        assert found.backward is not None
        assert found.backward.verdict == "EQUAL"
    np.testing.assert_array_equal(given, X)
    assert COUNTING.calls == 0


def test_what_a_function_holds_stays():
    def with_table(x):
        return x * TABLE.mul_(2)

    found = parity.diff((with_table, torch.from_numpy(X)), (lambda x: x * 2, X))
    assert found.verdict == "INCOMPLETE"  # B has no table, and so no gradient of it
    assert "no gradients" in found.summary()
    assert (TABLE == 1).all()


def test_integers_that_are_given_stay():
    given = torch.arange(3)
    found = parity.diff((lambda i: i.add_(1), given), (lambda i: i + 1, np.arange(3)))
    assert found.verdict == "EQUAL"
    assert given.tolist() == [0, 1, 2]


def test_sizes_that_numpy_computed_are_written_as_numbers():
    """Users divide shapes by numpy's whole numbers; JAX keeps them in its equations."""
    two, one = np.int64(2), np.int64(1)

    def function(x):
        y = jax.lax.conv_general_dilated(
            x, jnp.ones((3, 3, 3, 4)), (two, two), ((one, one),) * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        y = jax.lax.reduce_window(y, -np.inf, jax.lax.max, (1, two, two, 1), (1, two, two, 1), "VALID")
        return y.sum(axis=one) ** two

    program = record((function, np.ones((2, 8, 8, 3))), "A")
    written = " ".join(str(operation.label) for operation in program.operations)
    assert "stride=2" in written
    assert "int64" not in written


class KeepsBiases(torch.nn.Module):
    """Keeps its rows, as transformers' LeViT does in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.biases = torch.nn.Parameter(torch.linspace(-1, 1, 4))
        self.kept = {}

    def forward(self, x):
        if "cpu" not in self.kept:
            self.kept["cpu"] = self.biases[torch.tensor([3, 1, 0, 2])]
            self.last = self.kept["cpu"]
        return torch.tanh(x + self.kept["cpu"])


def test_what_a_module_keeps_of_its_parameters_is_gone_before_gradients_are_taken():
    def port(p, x):
        return jnp.tanh(x + p[jnp.array([3, 1, 0, 2])])

    model, x = KeepsBiases().eval(), np.linspace(-1, 1, 8).reshape(2, 4)
    found = parity.diff(
        (model, torch.from_numpy(x)), (partial(port, model.biases.detach().numpy().copy()), x)
    )
    assert found.verdict == "EQUAL", found.to_text()
    assert found.backward is not None
    assert not model.kept
    assert not hasattr(model, "last")
