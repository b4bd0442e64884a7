"""By probing: leaves whose values do not tell, from what the modules around them computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from parity.cli import run
from parity.measure.traces import record
from parity.verifier.match import Matched
from parity.verifier.match.match_paths import match_paths

pytestmark = pytest.mark.quick

WIDTH, HIDDEN, CLASSES, BATCH = 6, 11, 5, 7


class Ours(nn.Module):
    """Two norms, a square layer, two others."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.square = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2, self.fc1 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.square(self.norm1(x))
        return self.fc2(torch.relu(self.fc1(self.norm2(x))))


class Kernel(nn.Module):
    """A linear layer whose matrix is (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(inputs, outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.kernel + self.shift


class Theirs(nn.Module):
    """The same function under other names, its parts in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.up = Kernel(HIDDEN, CLASSES), Kernel(WIDTH, HIDDEN)
        self.after, self.before = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = Kernel(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(self.before(x))
        return self.last(torch.relu(self.up(self.after(x))))


def pair() -> tuple[Ours, Theirs]:
    torch.manual_seed(0)
    ours, theirs = Ours(), Theirs()
    with torch.no_grad():
        for layer, other in ((ours.square, theirs.mix), (ours.fc1, theirs.up), (ours.fc2, theirs.last)):
            other.kernel.copy_(layer.weight.T)
            other.shift.copy_(layer.bias)
    return ours, theirs


def traced(folder: Path, ours: nn.Module, theirs: nn.Module, **options) -> tuple[Path, Path]:
    images = torch.from_numpy(np.random.default_rng(0).standard_normal((BATCH, WIDTH))).float()
    for name, model in (("a", ours), ("b", theirs)):
        with record(folder / f"{name}.trace", model, **options) as trace, trace.step(x=images):
            model(images)
    return folder / "a.trace", folder / "b.trace"


def found(matched: Matched) -> dict[str, str]:
    return {link.a: f"{link.b} {link.grade}" for link in matched.links}


def test_new_norms_are_told_by_what_they_were_given(tmp_path, capsys):
    a, b = traced(tmp_path, *pair())
    matched = match_paths(a, b)
    assert matched.complete
    assert found(matched) == {
        "norm1.weight": "before.weight by probing",
        "norm1.bias": "before.bias by probing",
        "square.weight": "mix.kernel by value",
        "square.bias": "mix.shift by value",
        "norm2.weight": "after.weight by probing",
        "norm2.bias": "after.bias by probing",
        "fc1.weight": "up.kernel by value",
        "fc1.bias": "up.shift by value",
        "fc2.weight": "last.kernel by value",
        "fc2.bias": "last.shift by value",
    }
    assert matched.of("norm1.bias")[0].why == "norm1 and before were given the same and gave the same"
    assert run("match", [str(a), str(b)]) == 0
    assert "10 leaves of A: 6 by value, 4 by probing" in capsys.readouterr().out


def test_a_gain_that_was_folded_into_the_next_layer(tmp_path):
    ours, theirs = pair()
    with torch.no_grad():
        gain = 1 + torch.rand(WIDTH)
        ours.norm1.weight.copy_(gain)
        theirs.mix.kernel.mul_(gain[:, None])
    matched = match_paths(*traced(tmp_path, ours, theirs))
    (link,) = matched.of("square.weight")
    assert (link.b, link.grade, link.kind) == ("mix.kernel", "by probing", None)
    assert link.arrangement.transposed  # by what it makes of its input; its shape is square
    assert link.why == "square and mix gave the same"
    assert matched.of("square.bias")[0].grade == "by value"
    # only the gains are left, which differ and compute something else
    assert matched.of("norm1.weight") == ()
    assert matched.rest("a") == ("norm1.weight",)
    assert matched.rest("b") == ("before.weight",)


def test_values_that_are_close_are_paired_where_the_modules_are(tmp_path):
    ours, theirs = pair()
    with torch.no_grad():
        ours.norm1.weight.add_(torch.rand(WIDTH))
        theirs.before.weight.copy_(ours.norm1.weight)
        for parameter in theirs.parameters():
            parameter.mul_(1 + 1e-6)
    matched = match_paths(*traced(tmp_path, ours, theirs))
    assert matched.complete
    (link,) = matched.of("square.weight")
    assert (link.b, link.grade, link.arrangement.transposed) == ("mix.kernel", "by probing", True)
    assert "apart" in link.why
    assert matched.of("norm1.weight")[0].b == "before.weight"


def test_what_computed_something_else_is_not_paired(tmp_path):
    ours, theirs = pair()
    with torch.no_grad():
        theirs.mix.kernel.mul_(1.5)
    matched = match_paths(*traced(tmp_path, ours, theirs))
    assert matched.of("square.weight") == ()
    assert matched.of("norm1.weight")[0].grade == "by probing"  # what comes before is still the same
    assert matched.rest("a") == ("square.weight",)
    assert set(matched.ambiguous) <= {"norm2.weight", "norm2.bias"}


class Token(nn.Module):
    """A parameter of the model itself, in no module below it."""

    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.name, self.inner = name, inner
        self.register_parameter(name, nn.Parameter(torch.linspace(-1, 1, WIDTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x + self.get_parameter(self.name))


def test_a_leaf_of_the_model_itself_is_paired_if_it_is_close(tmp_path):
    ours, theirs = (Token(name, each) for name, each in zip(("x", "y"), pair(), strict=True))
    with torch.no_grad():
        theirs.get_parameter("y").mul_(1 + 1e-6)
    matched = match_paths(*traced(tmp_path, ours, theirs))
    assert matched.complete
    (link,) = matched.of("x")
    assert (link.b, link.grade, link.kind) == ("y", "by probing", None)
    assert link.why.startswith("the models were given the same")
