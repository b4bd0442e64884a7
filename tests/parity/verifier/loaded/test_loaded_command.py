"""`parity match MODEL FILE`: its sentence, exit status, JSON, and what it refuses."""

from __future__ import annotations

import json

import pytest

from parity.cli import run

pytestmark = pytest.mark.quick

CODE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.ModuleDict({"blocks": nn.ModuleList(nn.Linear(11, 13) for _ in range(4)), "head": nn.Linear(11, 7)})

def loaded():
    model = build()
    model.load_state_dict(torch.load("trained.pth"))
    return model

def half():
    model = build()
    state = torch.load("trained.pth")
    model.load_state_dict({n: t for n, t in state.items() if n[:8] not in ("blocks.2", "blocks.3")}, strict=False)
    return model

def save():
    model = build()
    torch.save({name: each.exp() for name, each in model.state_dict().items()}, "trained.pth")

def fails():
    return build().nothing
"""  # noqa: E501 - a user's code


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_of_loaded.py").write_text(CODE)
    import importlib

    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("mine_of_loaded").save()
    return tmp_path


def test_the_sentence_and_the_exit_status(folder, capsys):
    assert run("match", ["mine_of_loaded.py:loaded", "trained.pth"]) == 0
    said = capsys.readouterr().out
    assert said == "LOADED: 10 of 10 parameters hold trained.pth's numbers (all bit for bit)\n"
    assert run("match", ["mine_of_loaded.py:half", "trained.pth", "--json", "out.json"]) == 1
    said = capsys.readouterr().out.splitlines()[0]
    assert (
        said == "NOT LOADED: 4 of 10 parameters are not trained.pth's: blocks.{2-3}.* (as initialised)"
    )
    content = json.loads((folder / "out.json").read_text())
    assert (content["version"], content["loaded"], content["sentence"]) == (1, False, said)
    assert content["model"] == "mine_of_loaded.py:half"
    first = content["leaves"][0]
    assert first == {
        "name": "blocks.0.weight", "kind": "parameter", "held": True, "state": "bit for bit",
        "words": "", "of": ["blocks.0.weight"], "also": [],
    }  # fmt: skip
    argv = ["mine_of_loaded.py:half", "trained.pth", "--apart-from", "blocks.2.*", "blocks.3.*"]
    assert run("match", argv) == 0
    assert "not asked for: blocks.{2-3}.*" in capsys.readouterr().out


def test_bad_input_is_one_line_and_status_2(folder, capsys):
    model = "mine_of_loaded.py:loaded"
    for argv, said in (
        ([model], "expected a model and a file, or two files, got 1"),
        (["trained.pth", model], "is a model; give it first"),
        (["trained.pth", "trained.pth", "--apart-from", "x"], "--apart-from goes with a model"),
        ([model, "trained.pth", "--apart-from", "x"], "x fits no name of the model"),
        ([model, "none.pth"], "no such file"),
        (["mine_of_loaded.py:none", "trained.pth"], "has no function none"),
        (["mine_of_loaded.py:fails", "trained.pth"], "AttributeError in"),
        (["mine_of_loaded.py:save", "trained.pth"], "NoneType holds no parameters"),
    ):
        assert run("match", argv) == 2, argv
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
