"""`python -m evidence.bench`: what it refuses, and one run of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evidence.bench import measure as bench
from evidence.bench import peak
from evidence.bench.__main__ import Arguments, _cells, main
from evidence.bench.measure import Result, Run, Worker
from evidence.bench.sides import _torch, make_side


@pytest.fixture(autouse=True)
def _precision_as_it_was():
    """A side sets PyTorch's precision for its whole process, which here other tests share."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sides", "tim"], "unknown side 'tim'"),
        (["--batch", "0"], "--batch = 0: must be at least 1"),
        (["--repeats", "0"], "--repeats = 0: must be at least 1"),
        (["--beside", "no/python"], "--beside = no/python: no program that can be run; name a Python"),
        (["--peak", "0"], "--peak = 0.0: must be greater than 0"),
        (["vit_tiny_patch99"], "vit_tiny_patch99"),
    ],
)
def test_what_cannot_be_timed_is_said_in_one_line(argv, said, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_side_that_cannot_be_made_does_not_end_the_others():
    worker = Worker(
        "transformers", "deit_tiny_distilled_patch16_224", 2, "float32", Path(sys.executable)
    )
    try:
        worker.run("forward")
    finally:
        worker.close()
    assert "transformers has only the plain Vision Transformer" in (worker.result.error or "")
    assert worker.result.seconds == {}
    assert worker.result.side == f"transformers, {sys.executable}"


def test_medians_are_of_the_runs_after_the_first():
    result = Result("any", seconds={"step": [3.0, 1.0, 2.0]}, cpu_seconds={"step": [5.0, 6.0, 9.0]})
    assert (result.median("step"), result.median("step", cpu=True)) == (2.0, 6.0)
    assert result.median("forward") is None


def test_a_ratio_is_to_the_runs_around_it_whatever_the_machine_does_between():
    result = Result("twice as fast")
    for drift in (1.0, 1.3, 0.4):  # this side takes half of what the first takes at that moment
        before, own, after = (Run(drift * s, drift * 3 * s) for s in (2 * 0.8, 1.0, 2 / 0.8))
        result.add("step", own, before, after)
    assert result.ratio("step") == pytest.approx((2, 2, 2))
    assert result.ratio("step", cpu=True) == pytest.approx((2, 2, 2))
    assert result.ratio("forward") is None


def test_ratios_have_quartiles():
    assert Result("any", ratios={"step": [1.0, 5.0, 2.0, 4.0, 3.0]}).ratio("step") == (2.0, 3.0, 4.0)
    assert Result("any", ratios={"step": [7.0]}).ratio("step") == (7.0, 7.0, 7.0)


class Slow:
    """A worker whose runs take what the clock says, which a shared machine slows down steadily."""

    clock = 0.0

    def __init__(self, side, model, batch_size, dtype, python=None, in_a_row=1):
        self.result = Result(str(python or side))
        self.first = set()

    def run(self, which):
        if which not in self.first:
            return self.first.add(which)
        seconds = {"first": 2.0, "other": 1.0, "third": 4.0}[self.result.side] * 1.1**Slow.clock
        Slow.clock += 1
        return Run(seconds, seconds)

    def close(self):
        pass


def test_the_peak_is_the_fastest_and_no_share_is_beyond_it(monkeypatch):
    of = peak._of
    monkeypatch.setattr(peak, "_of", lambda name, dtype: {"numpy": 1e9, "torch": 3e9, "jax": 2e9}[name])
    assert peak.peak_flops() == (3e9, "torch")
    assert of("numpy", "bfloat16") == 0  # it has no such type
    assert min(peak.fastest(name, "float32", (64,), 1) for name in peak.LIBRARIES) > 1e6
    assert min(peak.fastest(name, "bfloat16", (64,), 1) for name in ("torch", "jax")) > 1e6
    each = Result("x", seconds={"forward": [1.0]}, first_seconds={"forward": 2.0})
    cells = [_cells(each, "forward", Arguments(batch=1), 10, limit) for limit in (20.0, 9.0)]
    assert [row[4] for row in cells] == ["50%", "none"]


def test_every_run_is_between_two_of_the_first_side(monkeypatch):
    monkeypatch.setattr(bench, "Worker", Slow)
    first, other, third = bench.measure(["first", "other", "third"], "any", 1, 4)
    assert other.ratios["step"] == pytest.approx([2.0] * 4)
    assert third.ratios["forward"] == pytest.approx([0.5] * 4)
    assert first.ratios["step"] == pytest.approx([1.21] * 8)  # two turns of the clock between its runs
    own, other = bench.measure(["first"], "any", 1, 4, beside="other")
    assert own.side == "first"
    assert other.ratios["step"] == pytest.approx([2.0] * 4)
    (alone,) = bench.measure(["first"], "any", 1, 3)
    assert alone.ratios["step"] == pytest.approx([1.1] * 3)


@pytest.mark.parametrize(("dtype", "seen"), [("bfloat16", torch.bfloat16), ("tf32", torch.float32)])
def test_products_are_computed_in_the_type_that_is_asked_for(dtype, seen):
    """The parameters stay float32; a CPU computes TensorFloat-32 in full."""
    types = []

    class Model(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            types.append(y.dtype)
            return y.mean((1, 2))

    images, labels = np.ones((2, 4, 5, 3), np.float32), np.zeros(2, int)
    model = Model(5, 3)
    side = _torch(model, dtype, images, labels, compiled=False, logits=None)
    side.forward()
    side.step()
    assert types == [seen] * 2
    assert model.weight.dtype == model.weight.grad.dtype == torch.float32


def test_the_jax_twin_runs_in_bfloat16():
    make_side("vit_jax", "digits", 3, "bfloat16").forward()


@pytest.mark.exhaustive  # both are compiled, in processes of their own
def test_both_twins_are_timed(tmp_path, capfd):
    file = tmp_path / "bench.json"
    runs = ["--batch", "3", "--repeats", "2", "--in-a-row", "2"]
    sides = ["--peak", "1e13", "--sides", "vit_torch", "vit_jax"]
    assert main(["digits", *runs, "--json", str(file), *sides]) == 0
    printed = capfd.readouterr().out
    assert "vit_torch" in printed
    content = json.loads(file.read_text())
    assert [side["side"] for side in content["sides"]] == ["vit_torch", "vit_jax"]
    for side, count in zip(content["sides"], (3, 2), strict=True):
        assert side["error"] is None
        assert {len(each) for each in side["seconds"].values()} == {count}
        assert {len(each) for each in side["ratios"].values()} == {2}
        assert side["peak_bytes"] > 2**20
