"""`parity convert-run` as it is typed: what it prints goes on with the run, word for word."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

import vit_torch
import vit_torch.train.checkpoint
from parity.cli import main
from parity.cli.support.train_options import parse
from parity.runs.compare import compare_runs
from parity.runs.folder import read_run
from tests.support.moved_runs import CFG, RECIPE, write_random
from vit_config.job import Job
from vit_config.schedule import learning_rate
from vit_jax.train.run import train
from vit_torch.train.run import train as train_in_torch
from vit_train.conduct import make_task
from vit_train.folder.log import read_log

DIGITS = CFG.replace(image_size=(8, 8), patch_size=(4, 2), in_channels=1, num_classes=10)
SMALL = RECIPE.replace(batch_size=256, accumulate=1, ema=None)
PAGE = Path(__file__).parents[3] / "docs" / "moving.md"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of JAX on the digits, stopped after the second of three steps an epoch."""
    folder = tmp_path_factory.mktemp("my runs")
    train(Job(DIGITS, SMALL), data_dir=folder, run_dir=folder / "run one", stop_after=2)
    return folder


def test_what_it_says_goes_on_with_the_run(trained, monkeypatch, capsys):
    """Relative paths, with a space in them, and nothing about the data but its name."""
    monkeypatch.chdir(trained)
    assert main(["convert-run", "run one", "moved", "--to", "torch"]) == 0
    first, parts, hint, command = capsys.readouterr().out.splitlines()
    assert first == "run one -> moved: 2 updates done"
    count = len(read_run(trained / "moved").state.params)
    names = ("parameters", "exp_avg", "exp_avg_sq")
    assert parts == "  " + ", ".join(f"{count} tensors of {name}" for name in names)
    assert hint == "  the next is update 3, on the batch that follows; to go on:"
    assert command == "  parity train --framework torch --config moved/run.json --run-dir moved"
    assert main([*shlex.split(command)[1:], "--stop-after", "4"]) == 0
    said = capsys.readouterr().out
    assert "continuing from step 2" in said
    assert "no longer bit for bit" not in said
    steps = [e["step"] for e in read_log(trained / "moved") if e["kind"] == "train"]
    assert steps == [1, 2, 3, 4]
    assert main(["plot", "moved"]) == 0
    assert (trained / "moved" / "curves.png").stat().st_size > 1000
    capsys.readouterr()
    # and back, where the path needs quotes
    assert main(["convert-run", "moved", "moved back", "--to", "jax", "--data-dir", "a b"]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert command.endswith("'moved back/run.json' --run-dir 'moved back' --data-dir 'a b'")
    request = parse(shlex.split(command)[2:], prog="parity train")
    assert request.flags.framework == "jax"
    assert request.job == Job(DIGITS, SMALL)
    assert request.run_dir == trained / "moved back"
    assert request.data_dir == trained / "a b"
    assert main([*shlex.split(command)[1:], "--stop-after", "5"]) == 0
    starts = [e for e in read_log(trained / "moved back") if e["kind"] == "start"]
    assert [(e["step"], e["framework"]) for e in starts] == [(0, "jax"), (2, "torch"), (4, "jax")]
    assert len({e["run_id"] for e in starts}) == 1


def test_the_very_same_step_may_be_chosen(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    assert main(["convert-run", "run one/", "chosen", "--to", "jax", "--step", "2"]) == 0
    command = capsys.readouterr().out.splitlines()[-1]
    assert command == "  parity train --config chosen/run.json --run-dir chosen"


def test_dropout_is_said_to_be_another_framework_s(tmp_path, capsys):
    drawn = CFG.replace(dropout_mlp_inner=0.1)
    folder = write_random(tmp_path / "run", "jax", RECIPE, cfg=drawn)
    assert main(["convert-run", str(folder), str(tmp_path / "moved"), "--to", "torch"]) == 0
    assert "PyTorch draws dropout masks of its own" in capsys.readouterr().out
    assert main(["convert-run", str(folder), str(tmp_path / "copy"), "--to", "jax"]) == 0
    assert "masks" not in capsys.readouterr().out


def test_the_environment_names_both_frameworks(tmp_path, capsys):
    folder = write_random(tmp_path / "run", "jax", RECIPE)
    began = json.loads((folder / "run.json").read_text())["environment"]
    assert "torch" not in began
    assert main(["convert-run", str(folder), str(tmp_path / "moved"), "--to", "torch"]) == 0
    now = json.loads((tmp_path / "moved" / "run.json").read_text())["environment"]
    assert now == {**began, "torch": now["torch"]}


def test_help(capsys):
    with pytest.raises(SystemExit) as end:
        main(["convert-run", "--help"])
    assert not end.value.code
    said = capsys.readouterr().out
    assert "{jax,torch}" in said
    assert "--cold" in said


def page_code(kind):
    """A piece of code of docs/moving.md."""
    return re.search(rf"<!-- {kind} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]


def test_a_loop_of_ones_own_goes_on_as_the_page_says(trained, capsys):
    """Its update is the trainer's, and what it saves can move on."""
    ours, theirs = trained / "ours", trained / "theirs"
    for folder in (ours, theirs):
        assert main(["convert-run", str(trained / "run one"), str(folder), "--to", "torch"]) == 0
    job = Job(DIGITS, SMALL)
    train_in_torch(job, data_dir=trained, run_dir=theirs, stop_after=3)

    path, model = ours / "checkpoints" / "2.pt", vit_torch.ViT(DIGITS).double()
    names = {"torch": torch, "vit_torch": vit_torch, "path": path, "model": model}
    exec(page_code("resume"), names)
    content, optimizer = names["content"], names["optimizer"]
    task = make_task(job, trained)
    batches = task.batches(content["step"])
    batch = next(batches)
    batches.close()
    images = torch.from_numpy(batch["image"]).double().permute(0, 3, 1, 2)
    labels = torch.from_numpy(batch["label"]).long()
    for group in optimizer.param_groups:
        group["lr"] = float(learning_rate(SMALL, content["step"], task.steps_per_epoch))
    torch.nn.functional.cross_entropy(model(images).logits, labels).backward()
    optimizer.step()
    exec(page_code("save"), {**names, "step": 3})
    assert compare_runs(ours, theirs).beyond(1e-12) == []
    assert compare_runs(ours, theirs).step == 3
    assert main(["convert-run", str(ours), str(trained / "again"), "--to", "jax"]) == 0
    assert "3 updates done" in capsys.readouterr().out
