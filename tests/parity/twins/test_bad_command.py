"""What `parity check` refuses: one clear line each, exit status 2, nothing half-written."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from parity.cli import main
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import Preprocess, write_weights

pytestmark = pytest.mark.quick

SMALL = TINY.replace(depth=1)


@pytest.fixture
def weights(tmp_path):
    """A good weights file."""
    path = tmp_path / "weights.safetensors"
    write_weights(path, SMALL, redrawn(SMALL), Preprocess())
    return path


@pytest.fixture
def check(capsys, monkeypatch):
    """``check(*argv)``: the one line of a `parity check` that refuses its input before any work."""

    def work(*_):
        raise AssertionError("the models were built")

    def run(*argv: object) -> str:
        try:
            status = main(["check", *map(str, argv)])
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        assert status == 2
        assert out == ""
        assert err.count("\n") == 1, err
        assert err.startswith("parity check: ")
        return err

    monkeypatch.setattr("parity.twins.run_jax.JaxTwin", work)
    return run


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["digitz"], ["'digitz'", "did you mean 'digits'?"]),
        (["resnet"], ["'resnet'", "the presets are", "vit_paper", "nor is it a path here"]),
        (["digits", "--fault", "tanhgelu"], ["'tanhgelu'", "did you mean 'tanh_gelu'?"]),
        (["digits", "--fault", "cosmic_rays"], ["'cosmic_rays'", "the faults are", "dropped_residual"]),
        (["digits", "--batch-size", "0"], ["--batch-size 0", "at least 1"]),
        (["digits", "--batch-size", "-3"], ["--batch-size -3", "at least 1"]),
        (["digits", "--seed", "-1"], ["--seed -1"]),
        (["digits", "--token-offset", "nan", "--dtype", "float64"], ["--token-offset nan"]),
        (["digits", "--token-offset", "5", "--dtype", "float32"], ["token_offset = 5", "('float32',)"]),
        (
            ["mnist_exercise", "--token-offset", "5", "--dtype", "float64"],
            ["token_offset = 5", 'pos_embed = "sincos1d"'],
        ),
        (["digits", "--dtype"], ["--dtype", "float64"]),
        (["digits", "--dtype", "float31"], ["float31", "--dtype", "float64", "bfloat16"]),
        (["digits", "--dtypo", "float32"], ["--dtypo", "--dtype"]),
        (["digits", "--batch-size", "many"], ["--batch-size", "many"]),
        (["digits", "--fault"], ["--fault"]),
        ([], ["a preset or a checkpoint"]),
        (["nowhere.safetensors"], ["nowhere.safetensors: no such file"]),
        (["some/folder/nowhere"], ["some/folder/nowhere: no such file"]),
        (["."], [".: none of model.safetensors"]),
        (["digits", "--json", "nowhere/report.json"], ["nowhere: no such folder"]),
        (["digits", "--svg", "nowhere/report.svg"], ["nowhere: no such folder"]),
        (["digits", "--json", "."], [".: is a folder"]),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else None,
)
def test_check_refuses(argv, words, check, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = check(*argv)
    for word in words:
        assert word in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("subject", "fault", "field"),
    [
        ("mnist_exercise", "detached_positions", "pos_embed"),
    ],
)
def test_a_fault_that_a_model_cannot_have_is_not_injected(subject, fault, field, check):
    line = check(subject, "--fault", fault, "--dtype", "float64")
    assert fault in line
    assert field in line


def damaged_files() -> dict:
    """name -> (how the file is made from a good one, what must be said)."""
    return {
        "truncated": (lambda content: content[: len(content) // 2], ["truncated", "bytes"]),
        "empty": (lambda content: b"", ["is empty"]),
        "pickle": (lambda content: pickle.dumps({"a": 1}), ["is a Python pickle"]),
        "zip": (lambda content: b"PK\x03\x04" + bytes(40), ["damaged or truncated zip archive"]),
        "flipped": (lambda content: content[:-1] + bytes([content[-1] ^ 1]), ["damaged", "head.bias"]),
        "json": (lambda content: b'{"num_heads": 5}', ["is a text file, not a checkpoint"]),
    }


@pytest.mark.parametrize("damage", damaged_files())
def test_check_refuses_a_damaged_file(damage, weights, check):
    change, words = damaged_files()[damage]
    weights.write_bytes(change(weights.read_bytes()))
    line = check(weights, "--json", weights.parent / "report.json")
    assert str(weights) in line
    for word in words:
        assert word in line
    assert os.listdir(weights.parent) == [weights.name]


def without(arrays, name):
    return {key: value for key, value in arrays.items() if key != name}


WRONG_TENSORS = {
    "missing": (lambda a: without(a, "norm.bias"), ["norm.bias: missing", "(30,)"]),
    "unexpected": (lambda a: {**a, "extra": np.ones(3)}, ["extra: unexpected", "(3,)"]),
    "shape": (
        lambda a: {**a, "head.weight": a["head.weight"].T},
        ["head.weight", "(30, 11)", "(11, 30)"],
    ),
    "mixed types": (
        lambda a: {**a, "head.weight": a["head.weight"].astype(np.float16)},
        ["head.weight: type float16", "float64"],
    ),
    "integers": (
        lambda a: {name: array.astype(np.int32) for name, array in a.items()},
        ["int32", "floating-point"],
    ),
    "nothing": (lambda a: {}, ["norm.bias: missing"]),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_check_refuses_a_file_that_is_not_the_model_it_describes(case, tmp_path, check):
    change, words = WRONG_TENSORS[case]
    path = tmp_path / "weights.safetensors"
    write_weights(path, SMALL, change(redrawn(SMALL)))
    line = check(path, "--dtype", "float64")
    assert str(path) in line
    for word in words:
        assert word in line


def test_positions_of_a_file_are_not_redrawn(weights, check):
    assert "--token-offset" in check(weights, "--token-offset", "3")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("chek", "did you mean check?"),
        ("ckpt/", "the commands are check"),
        (os.devnull, "parity inspect /dev/null shows what a checkpoint is"),
    ],
)
def test_an_unknown_command_names_the_nearest_or_all(capsys, command, hint):
    assert main([command]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"parity: no command {command!r}; {hint}")
    assert err.count("\n") == 1
    assert main(["train", "plot", "runs/a"]) == 2  # train.py has it
    said = "parity train: plot is a command of its own: parity plot runs/a\n"
    assert capsys.readouterr().err == said


@pytest.mark.slow
def test_a_process_ends_with_status_2_and_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "parity", "check", str(tmp_path / "nowhere.safetensors")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"parity check: {tmp_path}/nowhere.safetensors: no such file")
    assert done.stderr.count("\n") == 1


def test_a_report_that_exists_survives_bad_input(tmp_path, check):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"kept": True}))
    check("digits", "--json", report, "--fault", "nothing")
    assert json.loads(report.read_text()) == {"kept": True}
    assert os.listdir(tmp_path) == ["report.json"]
