"""Modules of two recordings that have other names: aligned by their order, their values, or a map."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import parity
from parity.verifier.recordings import Recorded, compare_sides
from vit_config import ConfigError, InputError, MissingFileError

WIDTH, CLASSES = 6, 3
IMAGES = np.random.default_rng(0).normal(size=(2, 4, 5, WIDTH))
LABELS = np.array([[0, 1, 2, 1], [2, 0, 0, 1]])


class Block(nn.Module):
    """A residual perceptron; `names` are those of its norm and its two layers."""

    def __init__(self, names, width=WIDTH, approximate="none"):
        super().__init__()
        self.names, self.approximate = names, approximate
        for name, layer in zip(
            names, (nn.LayerNorm(width), nn.Linear(width, 9), nn.Linear(9, width)), strict=True
        ):
            setattr(self, name, layer)

    def forward(self, x):
        norm, up, down = (getattr(self, name) for name in self.names)
        return x + down(nn.functional.gelu(up(norm(x)), approximate=self.approximate))


class Net(nn.Module):
    """Blocks and a head by the names of one library."""

    def __init__(self, depth=2, width=WIDTH, classes=CLASSES):
        super().__init__()
        self.blocks = nn.ModuleList(Block(("norm", "up", "down"), width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Other(nn.Module):
    """The same by other names, with a layer that does nothing outside training."""

    def __init__(self, *kinds):
        super().__init__()
        self.first, self.second = (Block(("ln", "wide", "narrow"), approximate=kind) for kind in kinds)
        self.drop, self.classify = nn.Dropout(0.0), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.classify(self.drop(self.second(self.first(x)).mean(1)))


NAMES = {
    "blocks.0": "first",
    "blocks.1": "second",
    **{
        f"blocks.{i}.{mine}": f"{block}.{theirs}"
        for i, block in enumerate(("first", "second"))
        for mine, theirs in {"norm": "ln", "up": "wide", "down": "narrow"}.items()
    },
    "head": "classify",
}


def recorded(path, model, images=IMAGES):
    """Two steps of a model whose parameters are those of every other model of these shapes."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.double().parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with parity.record(path, model, optimizer=optimizer) as trace:
        for x, y in zip(images, LABELS, strict=True):
            with trace.step(images=x, labels=y):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
                trace.log("loss", loss)
                loss.backward()
                optimizer.step()
    return path


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A, its port, and a port with another GELU in its second block."""
    folder = tmp_path_factory.mktemp("traces")
    recorded(folder / "a.trace", Net())
    recorded(folder / "b.trace", Other("none", "none"))
    recorded(folder / "wrong.trace", Other("none", "tanh"))
    (folder / "map.json").write_text(json.dumps(NAMES))
    return folder


@pytest.mark.parametrize("how", ["auto", "order", "values", "map"])
def test_modules_of_other_names_meet(traces, how):
    how = traces / "map.json" if how == "map" else how
    difference = compare_sides(Recorded(traces / "a.trace"), Recorded(traces / "b.trace"), how=how)
    assert difference.equal
    aligned = {a.path: b.path for a, b in difference.alignment.modules.items()}
    assert NAMES.items() <= aligned.items()
    wrong = compare_sides(Recorded(traces / "a.trace"), Recorded(traces / "wrong.trace"), how=how)
    assert (wrong.first.stage, wrong.first.where) == ("forward", "blocks.1")
    assert "blocks.1 = second" in str(wrong.first)


def test_by_name_nothing_but_the_model_meets(traces):
    difference = compare_sides(Recorded(traces / "a.trace"), Recorded(traces / "b.trace"), how="name")
    assert [(a.path, b.path) for a, b in difference.alignment.modules.items()] == [("", "")]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, MissingFileError, "no such file"),
        ("[]", ConfigError, "expected a JSON object"),
        ('{"block.0": "first"}', ConfigError, "'block.0': A called no module of that name"),
        ('{"blocks.0": "third"}', ConfigError, "'third': B called no module of that name"),
    ],
)
def test_a_map_names_modules_of_both(traces, tmp_path, content, error, message):
    if content is not None:
        (tmp_path / "map.json").write_text(content)
    with pytest.raises(error, match=message):
        compare_sides(
            Recorded(traces / "a.trace"), Recorded(traces / "b.trace"), how=tmp_path / "map.json"
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 3}, "depth 2 in .*, 3 in"),
        ({"width": 8}, r"input \(4, 5, 6\) in .*; width 6 in .*, 8 in"),
        ({"classes": 5}, r"output \(4, 3\) in .*, \(4, 5\) in"),
    ],
)
def test_another_model_is_refused(traces, tmp_path, options, message):
    images = np.ones((2, 4, 5, options.get("width", WIDTH)))
    other = recorded(tmp_path / "other.trace", Net(**options), images)
    with pytest.raises(InputError, match=f"not the same model: .*{message}"):
        compare_sides(Recorded(traces / "a.trace"), Recorded(other))
