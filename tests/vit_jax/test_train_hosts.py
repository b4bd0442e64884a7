"""Real processes that train as one: the same numbers, the same last step, and the run goes on alone."""

import json

import jax
import numpy as np
import pytest
from rich.console import Console

from parity.cli.support.train_options import parse
from tests.support.tiny_tfds import write_tiny_set
from tests.support.together import Together
from vit_config import ConfigError
from vit_jax.train.hosts import joined
from vit_jax.train.run import make_trainer, train
from vit_train.dry_run import rehearsal_task
from vit_train.log import read_log

FLAGS = {
    "model.image-size": "21 15",
    "model.patch-size": "7 5",
    "model.in-channels": "3",
    "model.hidden-size": "20",
    "model.depth": "1",
    "model.num-heads": "2",
    "model.mlp-dim": "28",
    "model.num-classes": "3",
    "model.no-qkv-bias": "",  # that of the keys has no gradient but noise
    "recipe.dtype": "float64",
    "recipe.batch-size": "8",
    "recipe.epochs": "400",
    "recipe.warmup-epochs": "0",
    "recipe.validation-fraction": "0.2",
    "recipe.eval-every-epochs": "1",
    "recipe.log-every-steps": "1",
    "recipe.mix.mixup": "0.8",
    "recipe.clip-norm": "1",
    "recipe.learning-rate": "1e-4",
    "recipe.ema": "0.9",
    "best": "loss",
}
MESH = "data=2,fsdp=2"


def words(flags):
    return [word for name, value in flags.items() for word in (f"--{name}", *value.split())]


def assert_close(found, expected):
    assert found.step == expected.step
    assert found.params.keys() == expected.params.keys()
    for name, ref in expected.params.items():
        assert np.linalg.norm(found.params[name] - ref) <= 1e-10 * np.linalg.norm(ref), name


@pytest.mark.slow
def test_two_processes_train_as_one_and_stop_together(tmp_path):
    data_dir, run_dir, alone_dir = (tmp_path / name for name in ("data", "together", "alone"))
    write_tiny_set(data_dir)
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(data_dir), *words(FLAGS)]
    job = parse(argv, prog="train").job
    with Together([*argv, "--mesh", MESH, "--run-dir", str(run_dir)], tmp_path) as both:
        both.wait_for_step(run_dir, 6)
        both.stop(1)
        assert both.wait() == [130, 130], both.printed()
        assert "stopped after step" in both.printed()[0]
        assert "epoch" not in both.printed()[1]  # the first speaks for all

    events = read_log(run_dir)
    last = events[-1]["step"]
    assert [event["step"] for event in events if event["kind"] == "train"] == list(range(1, last + 1))
    described = json.loads((run_dir / f"checkpoints/{last}/meta/metadata").read_text())["tensors"]
    assert described["params.head.weight"][0] == [20, 3]
    parts = [region for region, _ in described["params.head.weight"][2]]  # a half each
    assert parts == [[[0, 10], [0, 3]], [[10, 20], [0, 3]]]
    four, two = jax.devices()[:4], jax.devices()[:2]

    def go_on(folder, devices, mesh, stop_after):
        how = {"devices": devices, "mesh": mesh, "stop_after": stop_after}
        return train(job, data_dir=data_dir, run_dir=folder, console=Console(quiet=True), **how)

    alone = go_on(alone_dir, four, MESH, last)
    assert_close(go_on(run_dir, two, "data=2", last), alone)  # nothing is left to do
    for event, ref in zip(events[1:], read_log(alone_dir)[1:], strict=True):
        assert (event["kind"], event["step"]) == (ref["kind"], ref["step"])
        assert event["accuracy"] == ref["accuracy"]
        assert event["loss"] == pytest.approx(ref["loss"], rel=1e-10)
    assert any(event["kind"] == "validation" for event in events)
    # one process with other devices goes on where two stopped
    assert_close(go_on(run_dir, two, "data=2", last + 3), go_on(alone_dir, four, MESH, last + 3))


@pytest.mark.parametrize(
    ("coordinator", "process", "sentence"),
    [
        (None, "0/2", "--process 0/2 goes with --coordinator"),
        ("localhost:1", "2/2", "--process 2/2: give its number, from 0, and how many"),
        ("localhost:1", "first", "--process first: give its number"),
    ],
)
def test_what_cannot_be_joined_is_one_line(coordinator, process, sentence):
    with pytest.raises(ConfigError, match=sentence), joined(coordinator, process):
        pass


def test_several_processes_need_a_mesh(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    task = rehearsal_task(parse(words(FLAGS), prog="train").job)
    with pytest.raises(ConfigError, match=r"2 processes train together, .* add --mesh data=-1"):
        make_trainer(task)
