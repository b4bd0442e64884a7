"""A run is watched at the terminal and by other programs."""

import io
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from parity.cli.support.after_training import score_and_compare
from parity.cli.support.train_options import parse
from vit_config.scoring import Score
from vit_train.display.curve_text import draw, loss_curve
from vit_train.folder.log import RunLog

DOCS = Path(__file__).parents[2] / "docs"
LOSSES = {5: 2.5, 10: 0.5, 15: 1.5}


@pytest.fixture
def run_dir(tmp_path):
    with RunLog(tmp_path, start_step=0) as log:
        log.write("start", 0, run_id="abc", framework="jax")
        for step, loss in LOSSES.items():
            log.write("train", step, loss=loss)
        log.write("test", 15, loss=0.25, count=7)
    return tmp_path


@pytest.mark.parametrize("library", ["wandb", "mlflow"])
def test_the_scripts_of_the_page_send_each_number_once(library, run_dir, monkeypatch):
    """The libraries themselves were tried as docs/watching.md says."""
    calls, sent = [], []
    with_run = nullcontext(SimpleNamespace(log=lambda numbers, step: sent.append((step, numbers))))
    wandb = SimpleNamespace(init=lambda config, **_: calls.append(config) or with_run)
    mlflow = SimpleNamespace(
        start_run=lambda run_name: nullcontext(),
        log_params=calls.append,
        log_metrics=lambda numbers, step: sent.append((step, numbers)),
    )
    monkeypatch.setitem(sys.modules, library, {"wandb": wandb, "mlflow": mlflow}[library])
    monkeypatch.setattr(sys, "argv", ["watch", str(run_dir)])
    runpy.run_path(str(DOCS / f"watch_{library}.py"))
    assert [each["run_id"] for each in calls] == ["abc"]
    train = [(step, {"train/loss": loss}) for step, loss in LOSSES.items()]
    assert sent == [(0, {}), *train, (15, {"test/loss": 0.25})]


def test_a_curve_has_the_height_of_its_numbers():
    column = ["2.5 █", *["    █"] * 2, "    █ ▁", *["    █ █"] * 3, "0.5 █▁█"]
    assert draw([2.5, 0.5, 1.5]) == column


def test_the_curve_of_a_log_names_its_first_and_last_step_and_needs_two():
    events = [{"kind": "train", "step": step, "loss": float(step % 7)} for step in range(10, 5000, 10)]
    title, *rows, below = loss_curve(events)
    assert title == "loss in training"
    assert max(map(len, rows)) == len(below)
    assert below.split() == ["step", "10", "4,990"]
    assert loss_curve([*events[:1], {"kind": "test", "step": 10, "loss": 1.0}]) == []


def test_a_run_ends_without_a_comparison_if_asked(tmp_path):
    request = parse(["--no-check"], prog="parity train")
    said = io.StringIO()
    trained = SimpleNamespace(test=Score(0.5, 6, 7))
    missing = tmp_path / "weights.safetensors"  # so nothing reads it
    assert score_and_compare(request, trained, missing, missing, Console(file=said, width=200)) == 0
    assert "6/7" in said.getvalue()
    assert f"the twins are not compared, as asked; `parity check {missing}` does so" in said.getvalue()
