"""A step of two recordings is run again: a difference before the update has a line and a cause."""

from __future__ import annotations

import importlib.util
import os

import jax
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import parity
from parity.cli import main
from parity.verifier.compare import compare
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from vit_config import ConfigError

X = np.random.default_rng(0).normal(size=(4, 5))
Y = np.array([0, 2, 1, 2])

TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.norm, self.out = nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3)

    def forward(self, x):
        return self.out(nn.functional.gelu(self.norm(self.one(x))))


def program():
    return Net().double(), torch.ones(2, 5, dtype=torch.float64)
"""
NNX = """
import jax
import numpy as np
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.one, self.out = nnx.Linear(5, 7, rngs=rngs), nnx.Linear(7, 3, rngs=rngs)
        self.norm = nnx.LayerNorm(7, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.gelu(self.norm(self.one(x)), approximate=True))


def program():
    return Net(nnx.Rngs(0)), np.ones((2, 5))
"""
PLAIN = """
import jax
import jax.numpy as jnp
import numpy as np


def loss(params, x, y):
    z = x @ params["one"]["weight"].T + params["one"]["bias"]
    z = (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-5)
    z = jax.nn.gelu(z * params["norm"]["weight"] + params["norm"]["bias"], approximate=APPROXIMATE)
    z = z @ params["out"]["weight"].T + params["out"]["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean()


def program():
    shapes = {"one": (7, 5), "norm": (7,), "out": (3, 7)}
    ones = {n: {"weight": np.ones(s), "bias": np.zeros(s[:1])} for n, s in shapes.items()}
    return loss, (ones, np.ones((2, 5)), np.zeros(2, int))
"""


def loaded(path, text):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_torch(folder, text=TORCH, **options):
    module = loaded(folder / "their_model.py", text)
    model, _ = module.program()
    with torch.no_grad():  # not as it was built, as behind many steps
        for each in model.parameters():
            each.add_(0.3 * torch.randn(each.shape, dtype=each.dtype))
    start = {name: each.detach().numpy().copy() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"program": module.program} | options
    with parity.record(folder / "a.trace", model, optimizer=optimizer, **options) as trace:
        for x in (X, 2 * X):
            with trace.step(images=x, labels=Y):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(Y))
                trace.log("loss", loss)
                loss.backward()
                optimizer.step()
    return start


def of_nnx(folder, start, text=NNX):
    with jax.enable_x64(True):
        module = loaded(folder / "our_model.py", text)
        model = module.Net(nnx.Rngs(1))
        for name in ("one", "out"):
            layer = getattr(model, name)
            layer.kernel = nnx.Param(jax.numpy.asarray(start[f"{name}.weight"].T))
            layer.bias = nnx.Param(jax.numpy.asarray(start[f"{name}.bias"]))
        model.norm.scale = nnx.Param(jax.numpy.asarray(start["norm.weight"]))
        model.norm.bias = nnx.Param(jax.numpy.asarray(start["norm.bias"]))
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

        @nnx.jit
        def step(model, optimizer, x, y):
            def loss_of(model):
                return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

            loss, gradients = nnx.value_and_grad(loss_of)(model)
            optimizer.update(model, gradients)
            return loss

        path = folder / "our_model.py"
        with parity.record(
            folder / "b.trace", model, optimizer=optimizer, program=f"{path}:program"
        ) as trace:
            for x in (X, 2 * X):
                with trace.step(images=x, labels=Y):
                    trace.log("loss", step(model, optimizer, jax.numpy.asarray(x), Y))


def of_plain(folder, start, name, *, approximate):
    text = PLAIN.replace("APPROXIMATE", str(approximate))
    with jax.enable_x64(True):
        module = loaded(folder / f"plain_{name}.py", text)
        params = {}
        for key, value in start.items():
            layer, _, leaf = key.partition(".")
            params.setdefault(layer, {})[leaf] = jax.numpy.asarray(value)
        with parity.record(folder / f"{name}.trace", program=module.program) as trace:
            for x in (X, 2 * X):
                with trace.step(images=x, labels=Y):
                    trace.log("parameters", params)
                    loss, gradients = jax.value_and_grad(module.loss)(params, x, Y)
                    trace.log("loss", loss)
                    trace.log("gradients", gradients)


def said(folder, capsys, *flags, names="ab"):
    capsys.readouterr()
    status = main(["diff", *(str(folder / f"{name}.trace") for name in names), *flags])
    return status, " ".join(capsys.readouterr().out.split())


def test_another_gelu_has_its_line(tmp_path, capsys):
    of_nnx(tmp_path, of_torch(tmp_path))
    status, text = said(tmp_path, capsys, "--run-programs")
    assert status == 1
    assert "first difference (forward)" in text
    assert "activation: gelu, tanh where A has gelu" in text
    assert "their_model.py:13" in text
    assert "our_model.py:13" in text
    sides = [Recorded(tmp_path / f"{name}.trace") for name in "ab"]
    diagnosis = diagnose(compare_sides(*sides), run=compare)
    assert len(diagnosis.causes) == len(diagnosis.places) == 1


def test_a_loss_of_plain_arrays_has_its_line(tmp_path, capsys):
    start = of_torch(tmp_path)
    of_plain(tmp_path, start, "b", approximate=False)
    of_plain(tmp_path, start, "c", approximate=True)
    status, text = said(tmp_path, capsys, "--run-programs", names="bc")
    assert status == 1
    assert "first difference (loss)" in text
    assert "plain_c.py:10" in text


def test_programs_that_are_the_same_leave_the_loops(tmp_path, capsys):
    start = of_torch(tmp_path)
    of_nnx(tmp_path, {n: x for n, x in start.items()}, NNX.replace("True", "False"))
    assert said(tmp_path, capsys, "--run-programs")[0] == 0
    of_plain(tmp_path, start, "c", approximate=False)
    spoiled = parity.Trace(tmp_path / "c.trace")
    with parity.record(tmp_path / "d.trace", program=f"{tmp_path}/plain_c.py:program") as trace:
        for step in spoiled.steps:
            batch = {e.path: spoiled.read(e) for e in spoiled.of("batch", step)}
            with trace.step(**batch):
                for event in spoiled.events:
                    if event.step == step and event.stage != "batch":
                        more = 0.1234 if event.stage == "loss" else 0  # which no program returned
                        trace.log(event.stage, spoiled.read(event) + more, path=event.path)
    status, text = said(tmp_path, capsys, "--run-programs", names="cd")
    assert status == 1
    assert "both programs are EQUAL: the difference is in what the loops do beside them" in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (None, "--run-programs builds and runs again the programs"),
        ("edited", "A's program was edited since it was recorded"),
        ("gone", "A's program is gone: no file"),
        ("unknown", "A's recording does not say where its program is"),
        ("another", "expected (model, inputs)"),
        ("narrower", "its parameter one.weight (6, 5) was not recorded"),
        ("of another batch", "nothing is of the type and shape of its input array, float (2, 9)"),
    ],
)
def test_why_no_line_is_given(tmp_path, capsys, change, why):
    texts = {
        "another": TORCH.replace("return Net().double(), torch.ones(2, 5, dtype=torch.float64)", "pass"),
        "narrower": TORCH.replace("7", "6"),
        "of another batch": TORCH.replace("(2, 5,", "(2, 9,"),
    }
    options = {"program": None} if change == "unknown" else {}
    start = of_torch(tmp_path, **options)
    of_nnx(tmp_path, start)
    file = tmp_path / "their_model.py"
    if change in texts:
        file.write_text(texts[change])
        os.utime(file, (1, 1))  # what Python compiled in this second is of the same size
        index = tmp_path / "a.trace" / "index.json"
        index.write_text(index.read_text().replace(_digest(TORCH), _digest(texts[change])))
    elif change == "edited":
        file.write_text(TORCH + "\n")
    elif change == "gone":
        file.unlink()
    status, text = said(tmp_path, capsys, *(["--run-programs"] if change else []))
    assert status == 1
    assert "the first gradient that differs is that of out.bias; no line is given: " in text
    assert why in text


def _digest(text):
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def test_a_program_that_cannot_be_called_is_refused(tmp_path):
    for program in (lambda: None, "model.py:program", f"{__file__}:Net.forward", print):
        with pytest.raises(ConfigError, match="expected a function at the top level"):
            parity.record(tmp_path / "a.trace", program=program)
    assert not list(tmp_path.iterdir())
