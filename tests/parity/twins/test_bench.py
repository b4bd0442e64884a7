"""`parity bench`: what it refuses, and one run of it."""

import json

import pytest

from parity.cli import main
from parity.twins.bench.measure import Result, Worker


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sides", "tim"], "unknown side 'tim'"),
        (["--batch", "0"], "--batch = 0: must be at least 1"),
        (["--repeats", "0"], "--repeats = 0: must be at least 1"),
        (["--peak", "0"], "--peak = 0.0: must be greater than 0"),
        (["vit_tiny_patch99"], "vit_tiny_patch99"),
    ],
)
def test_what_cannot_be_timed_is_said_in_one_line(argv, said, capsys):
    assert main(["bench", *argv]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_side_that_cannot_be_made_does_not_end_the_others():
    worker = Worker("transformers", "deit_tiny_distilled_patch16_224", 2)
    try:
        worker.run("forward")
    finally:
        worker.close()
    assert "transformers has only the plain Vision Transformer" in (worker.result.error or "")
    assert worker.result.seconds == {}


def test_medians_are_of_the_runs_after_the_first():
    result = Result("any", seconds={"step": [3.0, 1.0, 2.0]}, cpu_seconds={"step": [5.0, 6.0, 9.0]})
    assert (result.median("step"), result.median("step", cpu=True)) == (2.0, 6.0)
    assert result.median("forward") is None


@pytest.mark.slow
def test_both_twins_are_timed(tmp_path, capfd):
    file = tmp_path / "bench.json"
    sides = ["--sides", "vit_torch", "vit_jax"]
    assert main(["bench", "digits", "--batch", "3", "--repeats", "2", "--json", str(file), *sides]) == 0
    printed = capfd.readouterr().out
    assert "vit_torch" in printed
    content = json.loads(file.read_text())
    assert [side["side"] for side in content["sides"]] == ["vit_torch", "vit_jax"]
    for side in content["sides"]:
        assert side["error"] is None
        assert {len(runs) for runs in side["seconds"].values()} == {2}
        assert side["peak_bytes"] > 2**20
