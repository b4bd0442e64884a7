"""A recording is taken for a shadow of A only if it is one: more would hide differences."""

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.cli import main
from parity.measure.nudge import nudge_numbers

RATE = 1e-3


def _record(path, *, rate=RATE, steps=3, dtype=torch.float64, nudge=None, seed=0, size=3, momentum=0.9):
    torch.manual_seed(0)
    model = nn.Linear(5, size).to(dtype)
    for name, each in model.named_parameters():
        each.data = each.data if nudge is None else nudge(each.data, name)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=momentum)
    stream = torch.Generator().manual_seed(seed)
    with parity.record(path, model, optimizer=optimizer) as trace:
        for _ in range(steps):
            x = torch.randn(4, 5, generator=stream, dtype=dtype)
            with trace.step(x=x):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                trace.log("loss", loss)
                loss.backward()
                optimizer.step()
    return path


def _unit(tensor, name):
    return torch.from_numpy(nudge_numbers(tensor.numpy(), 1, name))


SHADOWS = {
    "neighbours": _unit,
    "1 + eps": lambda tensor, _: tensor * (1 + torch.finfo(tensor.dtype).eps),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("nudge", SHADOWS.values(), ids=SHADOWS)
def test_a_shadow_is_taken(dtype, nudge, tmp_path, capsys):
    a, b = (_record(tmp_path / f"{name}.trace", dtype=dtype) for name in "ab")
    shadow = _record(tmp_path / "shadow.trace", dtype=dtype, nudge=nudge)
    assert main(["diff", str(a), str(b), "--shadow", str(shadow)]) == 0
    assert "of A's parameters and inputs changes" in " ".join(capsys.readouterr().out.split())


NONE = {
    "A once more": ({}, "its parameters and inputs are A's own"),
    "another rate": (
        {"rate": 1.01 * RATE, "nudge": _unit},
        "lr of (optimizer) is 0.00101, in A it is 0.001",
    ),
    "another momentum": (
        {"momentum": 0.8, "nudge": _unit},
        "momentum of (optimizer) is 0.8, in A it is 0.9",
    ),
    "other parameters": (
        {"nudge": lambda tensor, _: tensor * (1 + 1e-6)},
        "parameters weight of step 0 holds",
    ),
    "other data": ({"nudge": _unit, "seed": 1}, "batch x of step 0 holds"),
    "fewer steps": ({"nudge": _unit, "steps": 2}, "it has the steps 0, 1, A has 0, 1, 2"),
    "another type": (
        {"nudge": _unit, "dtype": torch.float32},
        "batch x of step 0 is float32 of shape [4, 5], in A it is float64 of shape [4, 5]",
    ),
    "another model": ({"size": 4}, "out_features of the model is 4, in A it is 3"),
}


@pytest.mark.parametrize("case", NONE)
def test_anything_else_is_refused(case, tmp_path, capsys):
    options, reason = NONE[case]
    a, b = _record(tmp_path / "a.trace"), _record(tmp_path / "b.trace", rate=1.01 * RATE)
    shadow = _record(tmp_path / "shadow.trace", **options)
    assert main(["diff", str(a), str(b), "--shadow", str(shadow)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{shadow} is no shadow of {a}: {reason}" in said


def test_a_shadow_of_a_recording_without_parameters_is_refused(tmp_path, capsys):
    for name in "ab":
        with parity.record(tmp_path / name) as trace, trace.step(x=np.ones(3)):
            trace.log("loss", 0.5)
    assert main(["diff", *(str(tmp_path / each) for each in "ab"), "--shadow", str(tmp_path / "b")]) == 2
    assert "parameters were not recorded" in capsys.readouterr().err
