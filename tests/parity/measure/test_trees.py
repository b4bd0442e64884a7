"""Trees of arrays as `parity.record` takes them: dictionaries, lists, states of optax, variables."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

from parity.measure.traces import Trace, record
from vit_config import InputError


def recorded(tmp_path, stage, value):
    with record(tmp_path / "a.trace") as trace, trace.step():
        trace.log(stage, value)
    opened = Trace(tmp_path / "a.trace")
    return {(e.stage, e.path, e.port): opened.read(e) for e in opened.events}


def test_lists_and_flax_layouts(tmp_path):
    kernel = np.arange(6.0).reshape(2, 3)
    tree = {
        "params": {"blocks": [{"fc": {"kernel": kernel, "bias": np.ones(3)}}, {"scale": np.ones(2)}]}
    }
    seen = recorded(tmp_path, "parameters", tree)
    assert list(seen) == [
        ("parameters", "blocks.0.fc.weight", ""),
        ("parameters", "blocks.0.fc.bias", ""),
        ("parameters", "blocks.1.weight", ""),
    ]
    np.testing.assert_array_equal(seen["parameters", "blocks.0.fc.weight", ""], kernel.T)


def test_without_kernels_names_and_layouts_stay(tmp_path):
    seen = recorded(tmp_path, "parameters", {"scale": np.ones(2), "fc.weight": np.ones((2, 3))})
    assert [path for _, path, _ in seen] == ["scale", "fc.weight"]


@pytest.mark.parametrize("wrap", [lambda tx: tx, lambda tx: optax.MultiSteps(tx, 2)])
def test_a_state_of_optax_is_its_moments_and_its_rate(tmp_path, wrap):
    parameters = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}

    @optax.inject_hyperparams
    def chain(learning_rate):
        return optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(learning_rate, mask={"w": True, "b": False})
        )

    state = wrap(chain(learning_rate=0.25)).init(parameters)
    seen = recorded(tmp_path, "moments", state)
    assert seen.keys() == {
        ("learning rate", "", ""),
        ("moments", "", "step"),
        *(("moments", name, port) for name in "wb" for port in ("exp_avg", "exp_avg_sq")),
    }
    assert seen["learning rate", "", ""] == 0.25


def test_moments_under_a_port_of_their_own(tmp_path):
    with record(tmp_path / "a.trace") as trace, trace.step():
        trace.log("moments", {"w": np.ones(2)}, port="exp_avg")
    assert [(e.path, e.port) for e in Trace(tmp_path / "a.trace").events] == [("w", "exp_avg")]


def test_values_of_either_framework(tmp_path):
    loss = torch.ones(1, requires_grad=True).sum()
    assert recorded(tmp_path, "loss", loss) == {("loss", "", ""): 1.0}


def test_variables_of_nnx_lose_their_value(tmp_path):
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    seen = recorded(tmp_path, "parameters", nnx.state(model))
    assert {path for _, path, _ in seen} == {"weight", "bias"}


def test_a_traced_value_is_refused(tmp_path):
    with record(tmp_path / "a.trace") as trace, trace.step():

        @jax.jit
        def step(x):
            with pytest.raises(InputError, match="loss: a value is a tracer; return it"):
                trace.log("loss", x)
            return x

        step(jnp.ones(2))
