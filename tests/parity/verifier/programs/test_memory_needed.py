"""Programs that are too large for the machine are refused before they run."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.verifier.compare import compare
from parity.verifier.programs import memory
from parity.verifier.programs.backward import record_gradients
from parity.verifier.programs.sides import record, taken_apart
from vit_config import InputError

WIDE = 2**14
X = np.ones((4, 8), np.float32)
RUNS = []


def of_torch():
    weight = torch.ones(8, WIDE)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def forward(self, x):
            RUNS.append("torch")
            return torch.tanh(x @ self.weight).sum(-1)

    return Net().eval(), torch.from_numpy(X)


def of_jax():
    weight = np.ones((8, WIDE), np.float32)
    return lambda w, x: jnp.tanh(x @ w).sum(-1), (weight, X)


@pytest.fixture
def limit(monkeypatch):
    def set_limit(number):
        monkeypatch.setattr(memory, "available", lambda: number)

    return set_limit


@pytest.mark.parametrize("make", [of_torch, of_jax])
def test_a_program_is_refused_before_it_runs(make, limit):
    limit(2**20)
    RUNS.clear()
    message = r"A: recording its operations takes about 0\.00\d+ GiB of memory, and 0\.00098 GiB are"
    with pytest.raises(InputError, match=message) as caught:
        record(make(), "A")
    assert "\n" not in str(caught.value)
    assert RUNS == []


@pytest.mark.parametrize("make", [of_torch, of_jax])
def test_gradients_are_refused_where_the_forward_pass_has_room(make, limit):
    limit(2**30)
    given = taken_apart(make(), "A")
    record(given, "A")
    limit(2**22)
    with pytest.raises(InputError, match=r"A: recording its gradients takes about 0\.00\d.*--forward"):
        record_gradients(given, [(0, np.ones(4))], "A")
    limit(2**30)
    assert record_gradients(given, [(0, np.ones(4))], "A").outputs


def test_a_comparison_says_why_it_has_no_gradients(limit):
    given = taken_apart(of_jax(), "A")
    record(given, "A")
    limit(int(given.backward[0]) - 1)
    compared = compare(of_jax(), of_jax(), names=("one", "two"))
    assert compared.forward.verdict == "EQUAL"
    assert re.match(r"one: recording its gradients takes about .* GiB", compared.no_backward)


def test_a_machine_that_does_not_tell_refuses_nothing(limit):
    limit(None)
    assert record(of_jax(), "A").outputs


def test_values_that_have_been_read_are_not_counted():
    import jax

    def chain(x):
        for _ in range(50):
            x = jnp.sin(x)
        return x

    numbers = np.ones(10**6)
    needed = memory.of_jaxpr(jax.make_jaxpr(chain)(numbers))
    kept = memory.KEEP_BYTES
    assert 2 * 4e6 <= needed - kept <= 40e6  # the input twice, two values of the chain
