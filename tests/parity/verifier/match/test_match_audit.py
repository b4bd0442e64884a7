"""A mapping of one's own is judged line by line, and the command says so."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from parity.cli import run
from parity.measure.traces import record
from parity.porting.formats import Stored, write_npz, write_safetensors
from parity.verifier.match import match
from parity.verifier.match.audit import audit
from vit_config import ConfigError

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


RIGHT = {
    "attn.qkv.weight": ["q", "k", "v"],
    "attn.proj.weight": {"leaf": "out", "transpose": True},
    "mlp.fc1.weight": "up",
    "norm1.bias": "before",
    "norm2.bias": "after",
    "gate.weight": "gate/kernel",
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"attn.qkv.weight": ["k", "q", "v"]}, {"attn.qkv.weight": ("wrong order", "q + k + v")}),
        ({"attn.qkv.weight": "q"}, {"attn.qkv.weight": ("wrong leaf", "q + k + v")}),
        ({"attn.proj.weight": "out"}, {"attn.proj.weight": ("transposition", "out is transposed")}),
        (
            {"attn.proj.weight": {"leaf": "out", "transpose": False}},
            {"attn.proj.weight": ("transposition", "out is transposed")},
        ),
        (
            {"mlp.fc1.weight": {"leaf": "up", "transpose": False}},
            {"mlp.fc1.weight": ("transposition", "up is transposed")},
        ),
        (
            {"norm1.bias": {"leaf": "before", "transpose": True}},
            {"norm1.bias": ("transposition", "before is not transposed")},
        ),
        (
            {"norm1.bias": "after", "norm2.bias": "before"},
            {
                "norm1.bias": ("wrong leaf", "norm1.bias is before; swapped with norm2.bias"),
                "norm2.bias": ("wrong leaf", "norm2.bias is after; swapped with norm1.bias"),
            },
        ),
        (
            {"norm2.bias": "before"},
            {  # the other line may stay
                "norm2.bias": ("used twice", "norm2.bias is after; before is norm1.bias"),
            },
        ),
        ({"norm1.bias": "befor"}, {"norm1.bias": ("unknown", "B has no befor; perhaps before")}),
        ({"norm3.bias": "before"}, {"norm3.bias": ("unknown", "A has no norm3.bias; perhaps norm")}),
        (
            {"turned.weight": "turned"},
            {"turned.weight": ("wrong order", "3 heads of 4 in the order 2, 0, 1")},
        ),
    ],
)  # fmt: skip
def test_every_wrong_line_is_named_with_what_is_right(sides, change, expected):
    ours, theirs = sides
    lines = audit({**RIGHT, **change}, match(ours, theirs))
    wrong = {line.a: line for line in lines if not line.right}
    if "turned.weight" not in change:
        assert wrong.pop("turned.weight").verdict == "missing"
    assert {name: line.verdict for name, line in wrong.items()} == {
        n: v for n, (v, _) in expected.items()
    }
    for name, (_, said) in expected.items():
        assert said in wrong[name].said, wrong[name].said


def test_a_line_whose_values_are_nowhere_or_not_telling():
    zeros = np.zeros(WIDTH, np.float32)
    ours = {"x": zeros, "y": zeros, "z": draw(WIDTH)}
    matched = match(ours, {"s": zeros, "t": zeros, "u": draw(WIDTH, seed=1)})
    lines = audit({"x": "s", "y": "t", "z": "u"}, matched)
    assert [line.verdict for line in lines] == ["right", "right", "not shown"]
    assert lines[2].said == "no leaf of B has the values of z"
    lines = audit({"x": "s", "y": "s", "z": "t"}, matched)
    assert [line.verdict for line in lines] == ["used twice", "used twice", "not shown"]


@pytest.mark.parametrize(
    "line", [3, None, [], ["a", 1], {"leaf": "a", "perm": 1}, {"leaf": "a", "transpose": 1}]
)
def test_a_line_of_another_form_is_refused(line):
    with pytest.raises(ConfigError, match=r"entry for x is .*expected"):
        audit({"x": line}, match({}, {}))


# the command


def save(path: Path, arrays: dict[str, np.ndarray]) -> str:
    stored = {name: Stored.of(np.ascontiguousarray(each)) for name, each in arrays.items()}
    path.unlink(missing_ok=True)
    if path.suffix == ".npz":
        write_npz(path, stored)
    else:
        write_safetensors(path, stored, {}, sealed=False)
    return str(path)


def test_the_command_matches_judges_and_writes(sides, tmp_path, capsys):
    ours, theirs = sides
    ours["patch_embed.proj.weight"] = theirs["patches"] = draw(WIDTH, 5)
    a, b = save(tmp_path / "a.safetensors", ours), save(tmp_path / "b.npz", theirs)
    out, table, lines = tmp_path / "out.json", tmp_path / "table.py", tmp_path / "map.json"
    assert run("match", [a, b, "--json", str(out), "--table", str(table)]) == 0
    said = capsys.readouterr().out
    assert "8 leaves of A: 8 by value; 10 leaves of B" in said
    found = json.loads(out.read_text())
    assert (found["complete"], found["a"], "map" in found) == (True, a, False)
    (link,) = [each for each in found["links"] if each["a"] == "turned.weight"]
    assert (link["b"], link["sure"], link["type"]) == ("turned", "by value", "float32")
    assert link["orders"][0]["indices"] == [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7]
    assert link["relation"] == "3 heads of 4 in the order 2, 0, 1"
    spec = importlib.util.spec_from_file_location("table", table)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(module.TABLE) == 7

    given = {**RIGHT, "turned.weight": "turned", "patch_embed.proj.weight": "patches"}
    lines.write_text(json.dumps(given))
    assert run("match", [a, b, "--map", str(lines), "--json", str(out)]) == 1
    assert "the map: 7 of 8 lines right" in capsys.readouterr().out
    assert [each["verdict"] for each in json.loads(out.read_text())["map"] if not each["right"]] == [
        "wrong order"
    ]

    del ours["turned.weight"], theirs["turned"], given["turned.weight"]
    a, b = save(tmp_path / "a.safetensors", ours), save(tmp_path / "b.npz", theirs)
    lines.write_text(json.dumps(given))
    assert run("match", [a, b, "--map", str(lines), "--all"]) == 0
    theirs["more"] = draw(7)
    assert run("match", [a, save(tmp_path / "b.npz", theirs)]) == 1
    assert "left over of B more 7" in capsys.readouterr().out


def test_bad_input_is_one_line_and_status_2(sides, tmp_path, capsys):
    ours, _ = sides
    a = save(tmp_path / "a.safetensors", ours)
    empty = save(tmp_path / "empty.safetensors", {})
    with record(tmp_path / "kept.trace", keep=5) as trace, trace.step():
        trace.log("parameters", ours)
    with record(tmp_path / "none.trace") as trace, trace.step(images=ours["norm1.bias"]):
        pass
    for name, text in (("text.json", "{"), ("list.json", "[1]"), ("none.json", "{}")):
        (tmp_path / name).write_text(text)
    for argv, said in (
        ([a], "expected two files, A and B, got 1"),
        ([a, str(tmp_path / "lost")], "no such file or folder"),
        ([a, empty], "holds no arrays to match"),
        ([a, str(tmp_path / "none.trace")], "holds no parameters; record them"),
        (
            [a, str(tmp_path / "kept.trace")],
            "keeps a sample of attn.qkv.weight (36, 12), not all its values",
        ),
        ([a, a, "--map", str(tmp_path / "lost.json")], "no such file"),
        ([a, a, "--map", str(tmp_path / "text.json")], "not valid JSON"),
        ([a, a, "--map", str(tmp_path / "list.json")], "list where an object"),
        ([a, a, "--map", str(tmp_path / "none.json")], "an empty object where"),
        ([a, a, "--table", str(tmp_path / "t.py")], "A has no patch_embed.proj.weight"),
    ):
        assert run("match", argv) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "t.py").exists()
