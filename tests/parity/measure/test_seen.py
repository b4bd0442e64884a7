"""Numbers that depend on nothing certify nothing: conversions and exports of weights of zeros say so."""

import json
from functools import partial

import numpy as np
import pytest

from parity.cli import main
from parity.measure.seen import is_zero, unseen
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import Preprocess, write_weights

CFG = TINY.replace(depth=1, layer_scale=0.1)
PIXELS = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3)
DRAWN = {name: each.astype("float32") for name, each in redrawn(CFG).items()}


def written(folder, zero):
    arrays = {n: each * (0 if n.startswith(zero) else 1) for n, each in DRAWN.items()}
    write_weights(folder / "own.safetensors", CFG, arrays, PIXELS)
    return str(folder / "own.safetensors")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ([np.ones((2, 3)), np.zeros((2, 3))], "the same for all images"),
        ([np.eye(2), np.zeros((2, 3))], ""),
        ([np.zeros((2, 3)), np.zeros((2, 0))], "zero throughout"),
        ([np.zeros((0, 3))], "no numbers"),
        ([np.ones((1, 3))], ""),
    ],
)
def test_what_could_not_have_differed(arrays, said):
    assert said in unseen(arrays)
    assert bool(said) == bool(unseen(arrays))


def test_parameters_that_multiply():
    zeros = partial(np.zeros, 3)
    assert [is_zero(n, zeros) for n in ("a.weight", "blocks.0.ls1.gamma", "a.bias")] == [
        True,
        True,
        False,
    ]
    assert not is_zero("a.weight", lambda: np.ones(3))


@pytest.mark.parametrize(
    ("zero", "status", "said"),
    [
        ("none", 0, []),
        (
            "blocks.0.ls",
            1,
            ["it is the same for all images", "2 parameters are zero", "blocks.0.ls1.gamma"],
        ),
        ("head", 0, ["1 parameter is zero", "head.weight"]),  # what it sees is compared
        ("", 1, ["it is zero throughout", "patch_embed.proj.weight"]),
        ("blocks.0.mlp", 0, ["2 parameters are zero"]),
    ],
)
def test_a_conversion_of_zeros_is_not_certified(zero, status, said, tmp_path, capsys):
    source = written(tmp_path, zero)
    assert main(["convert", source, str(tmp_path / "out"), "--to", "timm", "--verify"]) == status
    out = " ".join(capsys.readouterr().out.split())
    assert ("UNCERTIFIED" in out) == bool(status)
    assert all(each in out for each in said)
    assert (tmp_path / "out").is_dir()  # no difference was found


@pytest.mark.parametrize(
    ("zero", "status", "said"),
    [
        ("none", 0, "EQUAL: the twins are the same function"),
        ("head", 0, "zero in every number, which says nothing: 20 gradients"),
        ("", 1, "UNCERTIFIED: nothing that was compared could have differed: it is zero throughout"),
    ],
)
def test_a_check_of_zeros_is_not_certified(zero, status, said, tmp_path, capsys):
    report = tmp_path / "report.json"
    argv = ["check", written(tmp_path, zero), "--dtype", "float64", "--json", str(report)]
    assert main(argv) == status
    assert said in " ".join(capsys.readouterr().out.split())
    content = json.loads(report.read_text())
    assert (content["passed"], bool(content["unseen"])) == (not status, bool(status))


def test_an_export_of_zeros_is_not_certified(tmp_path, capsys):
    argv = ["--to", "stablehlo", "--input", "float32"]
    assert main(["export", written(tmp_path, ""), str(tmp_path / "out"), *argv]) == 1
    said = capsys.readouterr()
    assert said.out.count("says nothing: it is zero throughout") == 3
    assert "UNCERTIFIED: no output could have differed" in said.err
