"""Real processes that train as one: the same numbers, the same last step, and the run goes on alone."""

import json
import math
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from parity.cli.support.train_options import parse
from parity.runs.folder import read_run
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.read_share import SHAPE
from tests.support.same_state import CLOSE, assert_same_run, named
from tests.support.tiny import SMALLEST
from tests.support.tiny_tfds import write_tiny_set
from tests.support.together import Together
from vit_config import ConfigError
from vit_jax.train.hosts import join_processes
from vit_jax.train.run import make_trainer, train
from vit_train.dry_run import rehearsal_task
from vit_train.folder.log import read_log

FLAGS = {
    **SMALLEST,
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
    "save-every": "0.5s",
}
MESH = "data=2,fsdp=2"


def words(flags):
    return [word for name, value in flags.items() for word in (f"--{name}", *value.split())]


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
        assert re.search(r"stopping after step \d+: a process was told to stop\n", both.printed()[0])
        assert "stopped after step" in both.printed()[0]
        assert "epoch" not in both.printed()[1]  # the first speaks for all

    events = read_log(run_dir)
    last = events[-1]["step"]
    assert [event["step"] for event in events if event["kind"] == "train"] == list(range(1, last + 1))
    described = json.loads((run_dir / f"checkpoints/{last}/meta/metadata").read_text())["tensors"]
    assert described["params.head.weight"][0] == [20, 3]
    parts = [region for region, _ in described["params.head.weight"][2]]  # a half each
    assert parts == [[[0, 10], [0, 3]], [[10, 20], [0, 3]]]
    four, two = tuple(jax.devices()[:4]), tuple(jax.devices()[:2])

    def go_on(folder, devices, mesh, stop_after):
        how = {"devices": devices, "mesh": mesh, "stop_after": stop_after}
        return train(job, data_dir=data_dir, run_dir=folder, console=Console(quiet=True), **how)

    go_on(alone_dir, four, MESH, last)
    assert_same_run(run_dir, alone_dir)
    for event, ref in zip(events[1:], read_log(alone_dir)[1:], strict=True):
        assert (event["kind"], event["step"]) == (ref["kind"], ref["step"])
        assert event["accuracy"] == ref["accuracy"]
        assert event["loss"] == pytest.approx(ref["loss"], rel=CLOSE)
    assert any(event["kind"] == "validation" for event in events)
    # one process with other devices goes on where two stopped
    go_on(run_dir, two, "data=2", last + 3)
    go_on(alone_dir, four, MESH, last + 3)
    assert assert_same_run(run_dir, alone_dir) == last + 3


@pytest.mark.exhaustive
def test_four_processes_train_as_one(tmp_path):
    data_dir, run_dir = tmp_path / "data", tmp_path / "together"
    write_tiny_set(data_dir)
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(data_dir), *words(FLAGS)]
    how = ["--mesh", MESH, "--run-dir", str(run_dir), "--stop-after", "12"]
    with Together([*argv, *how], tmp_path, count=4, devices=1) as four:
        assert four.wait() == [0, 0, 0, 0], four.printed()
    train(
        parse(argv, prog="train").job,
        data_dir=data_dir,
        run_dir=tmp_path / "alone",
        devices=tuple(jax.devices()[:4]),
        mesh=MESH,
        stop_after=12,
        console=Console(quiet=True),
    )
    assert assert_same_run(run_dir, tmp_path / "alone") == 12


@pytest.mark.exhaustive
@pytest.mark.parametrize("mesh", ["data=2", "fsdp=2"])
def test_where_sums_have_two_terms_every_bit_is_the_same(mesh, tmp_path):
    """Two processes of a device each, then one of two; and one of two from the start. a + b is b + a."""
    data_dir, run_dir, alone_dir = (tmp_path / name for name in ("data", "together", "alone"))
    write_tiny_set(data_dir)
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(data_dir), *words(FLAGS)]
    how = ["--mesh", mesh, "--run-dir", str(run_dir), "--stop-after", "12"]
    with Together([*argv, *how], tmp_path, devices=1) as both:
        assert both.wait() == [0, 0], both.printed()
    for folder in (run_dir, alone_dir):
        train(
            parse(argv, prog="train").job,
            data_dir=data_dir,
            run_dir=folder,
            devices=tuple(jax.devices()[:2]),
            mesh=mesh,
            stop_after=18,
            console=Console(quiet=True),
        )
    actual, expected = (named(read_run(folder).state) for folder in (run_dir, alone_dir))
    assert actual.keys() == expected.keys()
    for name, ref in expected.items():
        np.testing.assert_array_equal(actual[name], ref, err_msg=name)


@pytest.mark.slow
def test_each_process_reads_its_share_and_all_learn_of_damage(tmp_path):
    program = Path(__file__).parents[1] / "support" / "read_share.py"
    with Together([str(tmp_path / "checkpoints")], tmp_path, program=program) as both:
        assert both.wait() == [0, 0], both.printed()
        content = [json.loads(printed.splitlines()[-1]) for printed in both.printed()]
    nbytes = 4 * math.prod(SHAPE)
    assert all(
        0.4 * nbytes < each["read"] < 0.6 * nbytes for each in content
    )  # normal floats pack a little
    said = r"process 1: the bytes of split\[514:1028, 0:263\] do not match their digest"
    assert all(re.fullmatch(said, each["said"]) for each in content), content


@pytest.mark.parametrize(
    ("coordinator", "process", "sentence"),
    [
        (None, "0/2", "--process 0/2 goes with --coordinator"),
        ("localhost:1", "2/2", "--process 2/2: give its number, from 0, and how many"),
        ("localhost:1", "first", "--process first: give its number"),
        ("localhost", "0/2", "--coordinator localhost: 'localhost' is not a HOST:PORT"),
        (":1", "0/2", "--coordinator :1: ':1' is not a HOST:PORT"),
        ("localhost:port", None, "'localhost:port' is not a HOST:PORT"),
    ],
)
def test_what_cannot_be_joined_is_one_line(coordinator, process, sentence):
    with pytest.raises(ConfigError, match=sentence), join_processes(coordinator, process):
        pass


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("JAX_COORDINATOR_ADDRESS", "first", "--coordinator auto: 'first' is not a HOST:PORT"),
        ("JAX_PROCESS_ID", "first", "JAX_PROCESS_ID = 'first': give a whole number"),
        ("JAX_NUM_PROCESSES", "-1", "JAX_NUM_PROCESSES = '-1': give a whole number"),
    ],
)
def test_what_an_environment_says_amiss_is_one_line(monkeypatch, key, text, sentence):
    monkeypatch.setenv(key, text)
    with pytest.raises(ConfigError, match=sentence), join_processes("auto", None):
        pass


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch):
    """As where libtpu is installed, and the metadata server is not there."""

    def initialize(**_):
        raise ConnectionError("metadata.google.internal: no such host")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    said = r"--coordinator auto: the processes cannot be joined \(metadata.*\); give --coordinator HOST"
    with pytest.raises(ConfigError, match=said), join_processes("auto", None):
        pass


def test_pmap_is_for_one_process(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    task = rehearsal_task(parse(words(FLAGS), prog="train").job)
    with pytest.raises(ConfigError, match=r"for one process, and 2 train together; use --mesh"):
        make_trainer(task, parallel="pmap")
