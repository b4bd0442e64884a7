"""`parity match` as a command: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from parity.cli import run
from parity.measure.traces import record
from parity.porting.formats import Stored, write_npz
from parity.verifier.match import match
from parity.verifier.match.families import skeleton
from parity.verifier.match.leaves import Leaves
from parity.verifier.match.links import Slices
from parity.verifier.match.place import _Beside
from tests.support.container_files import write_file
from vit_config.files.safetensors_stream import write_stream

pytestmark = pytest.mark.quick

WIDTH, HIDDEN, HEADS = 12, 23, 3


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.fixture
def sides() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A block by our names and by another's, whose matrices are square and whose heads are reversed."""
    ours = {
        "attn.qkv.weight": draw(3 * WIDTH, WIDTH),
        "attn.proj.weight": draw(WIDTH, WIDTH),
        "mlp.fc1.weight": draw(HIDDEN, WIDTH),
        "norm1.bias": draw(WIDTH),
        "norm2.bias": draw(WIDTH, seed=1),
        "gate.weight": draw(WIDTH, WIDTH, seed=1),
        "turned.weight": draw(WIDTH, WIDTH, seed=2),
    }
    q, k, v = np.split(ours["attn.qkv.weight"], 3)
    theirs = {
        "q": q,
        "k": k,
        "v": v,
        "out": ours["attn.proj.weight"].T,
        "up": ours["mlp.fc1.weight"].T,
        "before": ours["norm1.bias"],
        "after": ours["norm2.bias"],
        "gate/kernel": ours["gate.weight"].T,
        "turned": ours["turned.weight"].reshape(HEADS, -1, WIDTH)[[1, 2, 0]].reshape(WIDTH, WIDTH),
    }
    return ours, {name: np.ascontiguousarray(each) for name, each in theirs.items()}


def save(path: Path, arrays: dict[str, np.ndarray]) -> str:
    stored = {name: Stored.of(np.ascontiguousarray(each)) for name, each in arrays.items()}
    if path.suffix == ".npz":
        write_file(write_npz, path, stored)
    else:
        write_file(write_stream, path, stored, {}, sealed=False)
    return str(path)


def test_the_command_matches_and_writes(sides, tmp_path, capsys):
    ours, theirs = sides
    a, b = save(tmp_path / "a.safetensors", ours), save(tmp_path / "b.npz", theirs)
    out = tmp_path / "out.json"
    assert run("match", [a, b, "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "7 leaves of A: 7 by value; 9 leaves of B" in said
    content = json.loads(out.read_text())
    assert content["complete"]
    assert str(a).endswith(content["a"])  # without this machine's folder of temporary files
    (link,) = [each for each in content["links"] if each["a"] == "turned.weight"]
    assert (link["b"], link["sure"], link["type"]) == ("turned", "by value", "float32")
    assert link["orders"][0]["indices"] == [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7]
    assert link["relation"] == "3 heads of 4 in the order 2, 0, 1"

    theirs["more"] = draw(7)
    assert run("match", [a, save(tmp_path / "b.npz", theirs)]) == 1
    assert "left over of B more 7" in capsys.readouterr().out


def test_bad_input_is_one_line_and_status_2(sides, tmp_path, capsys):
    ours, _ = sides
    a = save(tmp_path / "a.safetensors", ours)
    empty = save(tmp_path / "empty.safetensors", {})
    with record(tmp_path / "a.trace") as trace, trace.step():
        trace.log("parameters", ours)
    for argv, said in (
        ([a], "expected a model and a file, or two files, got 1"),
        ([a, str(tmp_path / "lost")], "no such file or folder"),
        ([a, empty], "holds no arrays to match"),
        ([a, str(tmp_path / "a.trace")], "a recording, not a checkpoint; parity diff compares two"),
    ):
        assert run("match", argv) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_a_name_without_its_block_keeps_other_numbers():
    assert skeleton("blocks.3.mlp.0.weight") == "blocks.{i}.mlp.0.weight"


def test_a_part_along_another_axis_is_taken_too():
    beside = _Beside(Leaves({"x": draw(3, 3)}), [("x", Slices(0, 0, 1, 3))])
    parts = [(0, 0), (0, 1), (1, 1)]
    assert [beside._is_taken("x", Slices(axis, i, i + 1, 3)) for axis, i in parts] == [True, False, True]


def test_the_work_that_is_left_is_told_leaf_by_leaf():
    a = {name: draw(3, size) for name, size in (("x", 5), ("y", 7))}
    sizes, left = [each.size for each in a.values()], 3 * sum(each.size for each in a.values())
    stages = []
    match(a, a, on_stage=lambda *stage: stages.append(stage))
    for (what, work, then), size in zip(stages, [*sizes, *sizes, sum(sizes)], strict=True):
        assert (work, then) == (size, left - size), what
        left -= size
