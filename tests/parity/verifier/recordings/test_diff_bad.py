"""Recordings that cannot be used: one clear line."""

import shutil

import numpy as np
import pytest

import parity
from parity.cli import main

pytestmark = pytest.mark.quick


@pytest.fixture
def diff(capsys):
    """`parity diff`: status, output and error."""
    return lambda *arguments: _diff(capsys, *arguments)


def _diff(capsys, *arguments):
    status = main(["diff", *map(str, arguments)])
    said = capsys.readouterr()
    return status, " ".join(said.out.split()), said.err


@pytest.fixture
def trace(tmp_path):
    stream = np.random.default_rng(0)
    path = tmp_path / "a.trace"
    with parity.record(path) as recording, recording.step(x=stream.standard_normal((2, 7))):
        recording.log("forward", {"fc": stream.standard_normal((2, 5))}, port="out")
    return path


def _truncate(path):
    file = next(path.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-3])


def _edit(path):
    index = path / "index.json"
    index.write_text(index.read_text().replace("[2,5]", "[2,500]"))


def _break(path):
    index = path / "index.json"
    index.write_text(index.read_text()[:-9])


def _leave_open(path):
    (path / "index.json").unlink()


def _empty(path):
    shutil.rmtree(path)
    with parity.record(path):
        pass


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (_truncate, "truncated"),
        (_edit, "record it again"),
        (_break, "record it again"),
        (_leave_open, "the recording was not finished; record it again"),
        (_empty, "nothing was recorded in it"),
    ],
)
def test_damaged_traces(damage, line, trace, diff, tmp_path):
    whole = shutil.copytree(trace, tmp_path / "b.trace")
    assert diff(trace, whole)[0] == 0
    damage(trace)
    status, out, error = diff(trace, whole)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert line in error
    assert str(trace) in error
