"""The device that a check computes on is chosen, and what is not there is refused in one line."""

import jax
import numpy as np
import pytest
import torch

from parity.cli import main
from parity.measure.device import jax_device, names, torch_device
from parity.measure.environment import environment
from parity.measure.redraw import random_batch, redraw
from parity.twins import run_torch
from parity.twins.check import check_config
from tests.support.refusals import one_line
from tests.support.tiny import TINY
from vit_config import ConfigError


@pytest.fixture
def no_gpu(monkeypatch):
    def devices(kind):
        if kind == "gpu":
            raise RuntimeError("Unknown backend gpu")
        return cpus

    cpus = jax.devices("cpu")
    monkeypatch.setattr(jax, "devices", devices)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_the_report_says_what_was_computed_on():
    assert torch_device("cpu") == torch.device("cpu")
    assert jax_device("cpu").platform == "cpu"
    assert names("cpu") == {"jax": "cpu", "torch": "cpu"}
    stated = environment("highest", "cpu")
    assert (stated["jax device"], stated["torch device"]) == ("cpu", "cpu")


def test_a_gpu_that_is_not_there(no_gpu, capsys):
    for choose in (torch_device, jax_device):
        with pytest.raises(ConfigError) as error:
            choose("gpu")
        one_line(error.value, "device = gpu", "sees none", "use cpu")
    with pytest.raises(ConfigError):
        check_config(TINY, device="gpu")
    for command in (["check", "digits"], ["check-steps", "digits", "--steps", "1"]):
        assert main([*command, "--device", "gpu"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"parity {command[0]}: device = gpu, but ")
        assert error.count("\n") == 1


def test_everything_of_a_run_is_where_it_was_asked_to_be(monkeypatch):
    """torch's meta device stands in for a GPU: what stays on the CPU cannot be mixed with it."""
    seen = []

    def look(tensor, *, copy=True):
        seen.append(tensor.device.type)
        return np.zeros(tensor.shape)

    monkeypatch.setattr(run_torch, "torch_device", lambda device: torch.device("meta"))
    monkeypatch.setattr(run_torch, "to_numpy", look)
    weights = lambda name, kind, shape: redraw(name, kind, shape, 0)  # noqa: E731
    run_torch.TorchTwin(TINY, device="gpu").run(weights, random_batch(TINY, 2, seed=0), "float64")
    _, *computed = seen  # the first is of the type's name
    assert set(computed) == {"meta"}
    assert len(computed) > 100
