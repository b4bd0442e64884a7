"""A program of torch.export is named by the lines of the model that it was made of."""

import importlib.util
import sys

import numpy as np
import pytest
import torch

from parity.verifier.compare import compare
from parity.verifier.programs.files import read_program

X = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32))
MODEL = """
import torch.nn as nn

class Layer(nn.Module):
    def __init__(self, scale=1):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.LayerNorm(3)
        self.scale = scale

    def forward(self, x):
        y = self.linear(x)
        if self.scale != 1:
            y = y * self.scale + x
        else:
            y = y + x
        return self.norm(y).relu()
"""


@pytest.fixture
def layer(tmp_path, monkeypatch):
    path = tmp_path / "written_layer.py"
    path.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("written_layer", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "written_layer", module)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    right = module.Layer().eval()

    def make(**wrong):
        other = module.Layer(**wrong).eval()
        other.load_state_dict(right.state_dict())
        return other

    return make


def test_lines_of_a_program_are_those_of_its_model(layer):
    program = torch.export.export(layer(scale=2), (X,)).module()
    (place,) = compare((layer(), X), (program, X)).places
    assert [str(each) for each in place.b.lines] == ["written_layer.py:13"]
    assert place.b.lines[0].text == "y = y * self.scale + x"


def test_gradients_have_the_lines_of_the_forward_pass(layer):
    nothing = layer()
    torch.nn.init.zeros_(nothing.linear.weight)
    torch.nn.init.zeros_(nothing.linear.bias)
    wrong = layer(scale=2)
    wrong.load_state_dict(nothing.state_dict())
    program = torch.export.export(wrong, (X,)).module()
    compared = compare((nothing, X), (program, X))
    assert "the outputs are the same; their gradients are not" in compared.to_text()
    assert "written_layer.py:13" in [str(each) for each in compared.places[0].b.lines]


def test_lines_of_an_archive_are_named_and_never_read(layer, tmp_path):
    path = tmp_path / "written.pt2"
    torch.export.save(torch.export.export(layer(scale=2), (X,)), path)
    program = read_program(path, trusted=True)
    (place,) = compare((layer(), X), (program, X)).places
    (line,) = place.b.lines
    assert str(line) == "written_layer.py:13"
    assert line.file.startswith(str(path))
    assert not line.text
