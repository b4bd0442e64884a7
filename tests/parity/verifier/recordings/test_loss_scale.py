"""Loops that differentiate multiples of one loss: sums that are divided later, as in accumulation."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.cli import main

X = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 5)))


def train(path, *, times=1.0, divided=1.0, spoiled=False, zeroed=()):
    """Gradients of a loss that is `times` as large, `divided` again before the update."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if spoiled:  # the gradient that arrives at one module alone is another one
        net[1].register_full_backward_hook(lambda *_: (torch.zeros_like(X[:, :4]),))
    with parity.record(path, net) as trace:
        for _ in range(2):
            with trace.step(x=X):
                optimizer.zero_grad()
                loss = net(X).square().mean()
                trace.log("loss", loss)
                (times * loss).backward()
                for name, parameter in net.named_parameters():
                    parameter.grad.div_(divided).mul_(name not in zeroed)
                trace.log("gradients", {name: p.grad for name, p in net.named_parameters()})
                optimizer.step()
    return str(path)


@pytest.mark.parametrize("times", [2.0, 1024.0, 1 / 3])
def test_a_loss_that_is_multiplied_and_divided_again(tmp_path, capsys, times):
    a, b = train(tmp_path / "a"), train(tmp_path / "b", times=times, divided=times)
    assert main(["diff", a, b]) == 0
    assert "EQUAL" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("times", "likely"),
    [
        (2.0, "2: summed over 2 micro-batches or devices, not averaged"),
        (2048.0, "2048: the loss scale of mixed precision, not divided out"),
    ],
)
def test_one_that_is_not_divided_again_differs(tmp_path, capsys, times, likely):
    a, b = train(tmp_path / "a"), train(tmp_path / "b", times=times)
    assert main(["diff", a, b]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "cause: gradient-scale" in said
    assert likely in said
    assert re.search(r"│ 0 │ gradients │ 4( │ \S+){3} │ (follows|differs) │", said)


def test_gradients_of_two_factors_differ(tmp_path):
    """Those of the parameters are logged as if nothing were wrong."""
    a = train(tmp_path / "a")
    b = train(tmp_path / "b", times=2.0, divided=2.0, spoiled=True)
    assert main(["diff", a, b]) == 1


def test_gradients_that_are_zero_on_some_leaves_are_named(tmp_path, capsys):
    a, b = train(tmp_path / "a"), train(tmp_path / "b", zeroed=("0.bias",))
    assert main(["diff", a, b]) == 1
    assert "zero on some leaves" in " ".join(capsys.readouterr().out.split())
