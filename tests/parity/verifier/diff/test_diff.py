"""`parity diff` on the twins and on a port by hand: where two models differ, and that equal ones do
not."""

import json

import numpy as np
import pytest

from parity.cli import main
from parity.faults import inject
from parity.verifier.diff import compare_sides, process
from tests.support.sides import ServedHere, port, sides
from tests.support.tiny import variant
from vit_config import InputError

CLEAN = [  # tools/mutation_score.py has more
    "plain",
    *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("rope_mixed", "parallel", "map")),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CLEAN)
def test_equal_models_raise_nothing(name, dtype):
    difference = compare_sides(*sides(variant(name), dtype=dtype))
    assert difference.equal, difference.first
    compared = {each.stage: len(each.judged) for each in difference.comparisons}
    assert compared["forward"] > 60
    assert compared["backward"] > 50
    assert compared["gradients"] == compared["parameters"] > 30
    limits = [judged.limit for each in difference.comparisons for judged in each.judged]
    assert np.median(limits) < (1e-13 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize(
    ("fault", "stage", "where"),
    [
        ("tanh_gelu", "forward", "blocks.0.mlp.act"),
        ("dropped_residual", "forward", "blocks.0"),
        ("class_token_last", "forward", ""),
        ("detached_positions", "gradients", "pos_embed"),
    ],
)
def test_an_error_shows_where_it_is_made(fault, stage, where):
    cfg = variant("plain")
    with inject(fault, cfg):
        difference = compare_sides(*sides(cfg))
        (place,) = difference.lines.places
    assert (difference.first.stage, difference.first.where) == (stage, where)
    assert difference.lines.backward == (stage != "forward")
    assert place.times == (3 if where.startswith("blocks") else 1)  # every block has it


def test_a_port_by_hand_is_aligned_by_order():
    difference = compare_sides(*port("corrected"))
    assert difference.equal, difference.first
    names = {a.path: b.path for a, b in difference.alignment.modules.items()}
    assert names["blocks.1.attn.proj"] == "block_1.attention.out"
    assert names["blocks.2.mlp.fc1"] == "block_2.mlp.wide"
    assert "blocks.0.attn.qkv" not in names


def test_the_command_says_where_and_exits_1(capsys, tmp_path):
    out, picture, log, page = (tmp_path / f"diff.{kind}" for kind in ("json", "png", "sarif", "html"))
    arguments = ["docs/port.py:original", "docs/port.py:port"]
    flags = {"--json": out, "--picture": picture, "--sarif": log, "--html": page}
    assert main(["diff", *arguments, *(str(each) for pair in flags.items() for each in pair)]) == 1
    said = capsys.readouterr().out
    assert "blocks.0.mlp = block_0.mlp: blocks.0.mlp.fc2 in differs" in " ".join(said.split())
    found = json.loads(out.read_text())
    assert not found["equal"]
    assert (found["first"]["where"], found["first"]["stage"]) == ("blocks.0.mlp", "forward")
    assert [len(group) for group in found["places"]] == [1]
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = json.loads(log.read_text())["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "docs/port.py"
    assert "blocks.0.mlp = block_0.mlp" in page.read_text()


@pytest.fixture
def served_here(monkeypatch):
    monkeypatch.setattr(process.subprocess, "Popen", ServedHere)


@pytest.mark.usefixtures("served_here")
def test_the_command_exits_0_for_equal_models(capsys):
    assert main(["diff", "jax:mnist_exercise", "mnist_exercise", "--dtype", "float32"]) == 0
    assert "EQUAL" in capsys.readouterr().out


@pytest.mark.usefixtures("served_here")
def test_by_map(tmp_path, capsys):
    names = {"norm": "encoder_norm", "head": "head", "": ""}
    chosen = tmp_path / "map.json"
    chosen.write_text(json.dumps(names))
    arguments = ["diff", "docs/port.py:original", "docs/port.py:corrected"]
    assert main([*arguments, "--map", str(chosen)]) == 0
    chosen.write_text(json.dumps({"norm": "encoder_norm", "neck": "head"}))
    assert main([*arguments, "--map", str(chosen)]) == 2
    assert "'neck': A called no module of that name" in capsys.readouterr().err


def test_a_sample_of_large_tensors_is_enough(tmp_path):
    """What was kept as a sample is compared by it."""
    from parity.measure.traces import record
    from parity.verifier.diff import Recorded

    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((2, 7, 11)), rng.standard_normal((2, 7, 11))
    for name, changed in (("a", 0.0), ("b", 1e-3)):
        with record(tmp_path / name, keep=13) as trace, trace.step():
            trace.log("loss", arrays[0])
            trace.log("gradients", arrays[1] + changed)
    first = compare_sides(Recorded(tmp_path / "a"), Recorded(tmp_path / "b")).first
    assert first.stage == "gradients"


@pytest.mark.parametrize("keep", [(60, 60), (60, None), (None, 60)])
def test_samples_of_feature_maps_are_compared_in_either_layout(keep, tmp_path):
    from parity.measure.traces import record
    from parity.verifier.diff import Recorded

    maps = np.random.default_rng(0).standard_normal((2, 6, 9, 4))  # (B, C, H, W)
    for wrong in (0.0, 1e-9):
        there = (maps * (1 + wrong)).transpose(0, 2, 3, 1)
        for name, array, kept in (("a", maps, keep[0]), ("b", there, keep[1])):
            with record(tmp_path / name, keep=kept, force=True) as trace, trace.step():
                trace.log("forward", array, path="stem", port="out")
        difference = compare_sides(Recorded(tmp_path / "a"), Recorded(tmp_path / "b"))
        assert difference.tensors == 1
        assert difference.equal == (not wrong)
        kept_in_part = [
            f"{tmp_path / name}: of 1 of its 1 tensors" for name, n in zip("ab", keep, strict=True) if n
        ]
        assert [
            note[: len(said)] for note, said in zip(difference.notes, kept_in_part, strict=True)
        ] == (kept_in_part)


def test_samples_of_other_elements_are_refused(tmp_path):
    from parity.measure.traces import record
    from parity.verifier.diff import Recorded

    for name, keep in (("a", 60), ("b", 30)):
        with record(tmp_path / name, keep=keep) as trace, trace.step():
            trace.log("loss", np.ones((61, 7)))
    with pytest.raises(InputError, match=r"keep other elements of .*; record both with the same `keep`"):
        compare_sides(Recorded(tmp_path / "a"), Recorded(tmp_path / "b"))
