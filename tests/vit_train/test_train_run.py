"""Whole training runs on a tiny rectangular three-channel set."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.stopping import stopping_after
from tests.support.tiny import TINY
from tests.support.tiny_tfds import write_tiny_set
from vit_config import CheckpointError, DataError, Recipe, TrainingError
from vit_config.errors import ConfigError
from vit_config.job import Job, default_job
from vit_jax.train.checkpoint import Checkpoints
from vit_jax.train.run import train
from vit_jax.train.spread import make_program
from vit_train.folder.log import RunLog, read_log
from vit_train.folder.manifest import Manifest, as_begun, claim, differences, locked

CFG = TINY.replace(depth=1, num_classes=3, dropout_embed=0.1, dropout_mlp_inner=0.1)
RECIPE = Recipe.from_json("""{
    "epochs": 3, "batch_size": 8, "learning_rate": 0.003, "weight_decay": 0.05, "warmup_epochs": 1,
    "log_every_steps": 1, "checkpoint_every_epochs": 1,
    "augment": {"shift": 0.1, "rotate": 5.0, "flip": true}
}""")
JOB = Job(CFG, RECIPE, "tfds:tiny_rectangles")
STEPS_PER_EPOCH, STEPS = 5, 15  # 47 images in batches of 8


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """An uninterrupted run and its folder."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    return train(JOB, data_dir=data_dir, run_dir=run_dir), run_dir


def one_device():
    """Quicker to compile for than eight."""
    return tuple(jax.local_devices()[:1])


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def losses(run_dir):
    return {e["step"]: e["loss"] for e in read_log(run_dir) if e["kind"] == "train"}


def test_a_run_learns_and_leaves_everything(whole):
    trained, run_dir = whole
    assert trained.step == STEPS
    assert trained.test.count == 19
    assert all(value.dtype == np.float32 for value in trained.params.values())
    assert sorted(losses(run_dir)) == list(range(1, STEPS + 1))
    assert losses(run_dir)[STEPS] < losses(run_dir)[1]
    events = read_log(run_dir)
    assert [event["kind"] for event in events if event["kind"] != "train"] == ["start", "test"]
    assert events[-1]["count"] == 19
    assert sorted(p.name for p in (run_dir / "checkpoints").iterdir()) == ["10", "15", "5"]
    assert json.loads((run_dir / "run.json").read_text())["model"]["hidden_size"] == 30


def test_tensorboard_reads_the_events(whole):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, run_dir = whole
    board = EventAccumulator(str(run_dir / "tensorboard"))
    board.Reload()
    drawn = {event.step: event.value for event in board.Scalars("train/loss")}
    assert drawn == pytest.approx(losses(run_dir), rel=1e-6)
    assert "tensorflow" not in sys.modules


def test_tensorboard_forgets_the_steps_that_are_taken_again(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for start, steps in ((0, (1, 2, 3)), (2, (3,))):
        with RunLog(tmp_path, start_step=start) as log:
            for step in steps:
                log.write("train", step, loss=float(start))
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(each.step, each.value) for each in board.Scalars("train/loss")] == [(1, 0), (2, 0), (3, 2)]


def test_a_log_whose_folder_is_gone_says_nothing(tmp_path, capfd):
    (tmp_path / "run").mkdir()
    with RunLog(tmp_path / "run", start_step=0) as log:
        shutil.rmtree(tmp_path / "run")
        log.write("train", 1, loss=1.0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("line", ["oops", "{}"])
def test_a_line_of_the_log_that_is_none_can_be_mended(tmp_path, line):
    (tmp_path / "log.jsonl").write_text(f"{line}\n")
    with pytest.raises(CheckpointError, match=r"line 1: not .*; mend the line, or remove it"):
        read_log(tmp_path)


@pytest.mark.parametrize("stop_at", [7, 10])
def test_a_resumed_run_is_bit_for_bit_the_whole_one(whole, data_dir, tmp_path, monkeypatch, stop_at):
    trained, run_dir = whole
    with monkeypatch.context() as patch:
        stopping_after(stop_at, patch)
        stopped = train(JOB, data_dir=data_dir, run_dir=tmp_path / "run")
    assert (stopped.step, stopped.test) == (stop_at, None)
    resumed = train(JOB, data_dir=data_dir, run_dir=tmp_path / "run")
    assert resumed.step == STEPS
    assert_same(resumed.params, trained.params)
    assert resumed.test == trained.test
    assert losses(tmp_path / "run") == losses(run_dir)
    program = make_program(CFG, RECIPE, STEPS_PER_EPOCH)
    states = []
    for folder in (run_dir, tmp_path / "run"):
        run_id = read_log(folder)[0]["run_id"]
        with Checkpoints(folder / "checkpoints", run_id=run_id) as checkpoints:
            states.append(checkpoints.restore_latest(program.abstract_state, warn=pytest.fail)[1])
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_a_run_ends_where_it_is_told_to_and_goes_on(whole, data_dir, tmp_path):
    trained, run_dir = whole
    here = {"data_dir": data_dir, "run_dir": tmp_path / "run"}
    for stop_after in (0, 0, 3):
        stopped = train(JOB, **here, stop_after=stop_after)
        assert (stopped.step, stopped.test) == (stop_after, None)
        assert (tmp_path / "run" / "checkpoints" / str(stop_after)).is_dir()
    assert train(JOB, **here, stop_after=2).step == 3  # it is further already
    resumed = train(JOB, **here, stop_after=1000)
    assert_same(resumed.params, trained.params)
    assert resumed.test == trained.test
    assert losses(tmp_path / "run") == losses(run_dir)
    with pytest.raises(ConfigError, match="stop_after = -1: "):
        train(JOB, data_dir=data_dir, run_dir=tmp_path / "other", stop_after=-1)


def test_a_finished_run_is_not_trained_again(whole, data_dir):
    trained, run_dir = whole
    again = train(JOB, data_dir=data_dir, run_dir=run_dir)
    assert_same(again.params, trained.params)
    assert [e["kind"] for e in read_log(run_dir) if e["kind"] == "test"] == ["test"]


@pytest.mark.slow
def test_a_run_goes_on_under_pmap(data_dir, tmp_path, monkeypatch):
    """The state is the same whichever way the step is spread; with dropout off so is the result.

    But for the keys' bias, whose gradient is rounding alone, of which Adam makes whole steps.
    """
    job = Job(CFG.replace(dropout_embed=0.0, dropout_mlp_inner=0.0), RECIPE, JOB.data)
    whole = train(job, data_dir=data_dir, run_dir=tmp_path / "whole", mesh="fsdp=-1")
    with monkeypatch.context() as patch:
        stopping_after(6, patch)
        train(job, data_dir=data_dir, run_dir=tmp_path / "run", mesh="fsdp=-1")
    resumed = train(job, data_dir=data_dir, run_dir=tmp_path / "run", parallel="pmap")
    keys = np.s_[CFG.hidden_size : 2 * CFG.hidden_size]
    for name, value in whole.params.items():
        pair = (resumed.params[name], value)
        pair = [np.delete(x, keys) for x in pair] if name.endswith("qkv.bias") else pair
        np.testing.assert_allclose(*pair, rtol=0, atol=1e-4, err_msg=name)


def test_another_job_is_refused_with_every_changed_field(whole, data_dir):
    _, run_dir = whole
    before = sorted(run_dir.rglob("*"))
    other = Job(CFG.replace(patch_size=(3, 5)), RECIPE.replace(batch_size=16, seed=1), JOB.data)
    with pytest.raises(CheckpointError) as caught:
        train(other, data_dir=data_dir, run_dir=run_dir)
    text = str(caught.value)
    for part in (
        "model.patch_size = [7, 5] there, [3, 5] here",
        "recipe.batch_size = 8 there, 16 here",
        "recipe.seed = 0 there, 1 here",
        "--run-dir",
    ):
        assert part in text
    assert sorted(run_dir.rglob("*")) == before


def test_other_data_is_refused(whole, tmp_path):
    _, run_dir = whole
    write_tiny_set(tmp_path, seed=1)
    with pytest.raises(CheckpointError, match=r"holds another run: data.fingerprint = "):
        train(JOB, data_dir=tmp_path, run_dir=run_dir)


def test_the_same_data_under_another_name_goes_on(whole, tmp_path):
    _trained, run_dir = whole
    shutil.copytree(run_dir, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    elsewhere = Manifest({**manifest, "data": {**manifest["data"], "name": "folder:elsewhere/"}})
    same, said = as_begun(tmp_path / "run", elsewhere)
    assert (same, same.run_id) == (manifest, Manifest(manifest).run_id)
    assert said == [f"folder:elsewhere/: is {JOB.data}, with which this run began, by its contents"]
    assert claim(tmp_path / "run", same) == []
    init = {"name": "w.safetensors", "digest": "0", "part": None}
    (tmp_path / "run.json").write_text(json.dumps({**manifest, "init": init}))
    moved = Manifest({**manifest, "init": {**init, "name": "x/w.safetensors"}})
    assert as_begun(tmp_path, moved)[0]["init"] == init
    other = Manifest({**manifest, "init": {**init, "name": "x/w.safetensors", "digest": "1"}})
    assert as_begun(tmp_path, other) == (other, [])
    assert as_begun(tmp_path / "nothing", other) == (other, [])


def test_values_that_begin_alike_are_shown_where_they_differ():
    one, other = "folder:/data/of/somebody/flowers", "folder:/data/of/somebody/flowers/"
    (said,) = differences({"data": {"name": one}}, {"data": {"name": other}})
    assert said == 'data.name = ".../flowers" there, ".../flowers/" here'
    assert differences({"x": float("nan")}, {"x": float("nan")}) == ["x = NaN there, NaN here"]
    (said,) = differences({"digest": "ab" * 32}, {"digest": "cd" * 32})
    assert said == 'digest = "abababababababa..." there, "cdcdcdcdcdcdcdc..." here'
    (said,) = differences({"digest": "ab" * 32}, {"digest": "ab" * 16 + "cd" * 16})
    assert said.partition(" there, ")[0] != said.partition(" there, ")[2]


HOLD = """
import sys
from pathlib import Path
from vit_train.folder.manifest import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    folder = tmp_path / "run"
    refused = pytest.raises(CheckpointError, match="another process is training in this folder")
    with locked(folder), refused, locked(folder):
        pass
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with refused, locked(folder):
            pass
        other.kill()  # a lock dies with its process, however that ends
    with locked(folder):
        pass


def test_a_folder_that_cannot_be_locked_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CheckpointError, match=r"file/run: cannot be written \(Not a directory\)"),
        locked(tmp_path / "file" / "run"),
    ):
        pass


def test_validation_is_cut_off_the_training_set(data_dir, tmp_path):
    """In bfloat16, whose parameters stay float32."""
    watched = {"validation_fraction": 0.3, "eval_every_epochs": 2, "watch_test": True}
    recipe = RECIPE.replace(**watched, dtype="bfloat16")
    trained = train(
        Job(CFG, recipe, JOB.data), data_dir=data_dir, run_dir=tmp_path, devices=one_device()
    )
    # 33 of 47 images are left to train on: 4 batches of 8
    assert trained.step == 12
    assert all(value.dtype == np.float32 for value in trained.params.values())
    seen = [(event["kind"], event["step"]) for event in read_log(tmp_path) if event["kind"] != "train"]
    assert seen == [("start", 0), ("validation", 8), ("test", 8), ("validation", 12), ("test", 12)]
    with pytest.raises(DataError, match=r"validation_fraction = 0.01 of 47 training examples is 0"):
        train(
            Job(CFG, RECIPE.replace(validation_fraction=0.01), JOB.data),
            data_dir=data_dir,
            run_dir=tmp_path / "other",
        )


def test_a_loss_that_is_not_finite_stops_the_run(data_dir, tmp_path):
    recipe = RECIPE.replace(learning_rate=1e30, warmup_epochs=0.0, log_every_steps=4)
    with pytest.raises(TrainingError, match=r"^step [234]: the loss is nan .* lower learning_rate"):
        train(
            Job(CFG, recipe, JOB.data),
            data_dir=data_dir,
            run_dir=tmp_path / "run",
            devices=one_device(),
        )
    assert not [p for p in (tmp_path / "run" / "checkpoints").iterdir() if p.name.isdigit()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"in_channels": 1},
            "has 3 channels, but the model has in_channels = 1; add --model.in-channels 3",
        ),
        (
            {"num_classes": 10},
            "has 3 classes, but the model has num_classes = 10; add --model.num-classes 3",
        ),
        (
            {"in_channels": 1, "num_classes": 10},
            "has 3 channels and 3 classes, but the model has in_channels = 1 and num_classes = 10;"
            " add --model.in-channels 3 --model.num-classes 3",
        ),
    ],
)
def test_data_that_does_not_fit_the_model(data_dir, tmp_path, change, message):
    job = Job(CFG.replace(**change), RECIPE, JOB.data)
    with pytest.raises(DataError) as caught:
        train(job, data_dir=data_dir, run_dir=tmp_path / "run")
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_batch_that_does_not_divide_is_refused_at_the_start(data_dir, tmp_path):
    job = Job(CFG, RECIPE.replace(batch_size=10), JOB.data)
    with pytest.raises(ConfigError, match="use 8 or 16"):
        train(job, data_dir=data_dir, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.exhaustive
def test_float64_is_kept(data_dir, tmp_path):
    recipe = RECIPE.replace(dtype="float64", epochs=1, warmup_epochs=0.0, matmul_precision="highest")
    trained = train(
        Job(CFG, recipe, JOB.data), data_dir=data_dir, run_dir=tmp_path / "run", devices=one_device()
    )
    assert all(value.dtype == np.float64 for value in trained.params.values())
    assert not jax.config.jax_enable_x64
    assert any(np.any(value != value.astype(np.float32)) for value in trained.params.values())


@pytest.mark.slow
def test_sigint_ends_the_run_with_a_good_checkpoint(tmp_path):
    job = default_job("digits")
    command = [
        *(sys.executable, "-m", "parity", "train", "--recipe.epochs", "100000", "--model.depth", "1"),
        *("--data-dir", str(tmp_path / "data"), "--run-dir", str(tmp_path / "run")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 300
    while not (log.is_file() and '"train"' in log.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 130, errors
    assert "stopped after step" in out
    assert "to continue: parity train --recipe.epochs 100000" in out
    step = int(out.partition("stopped after step ")[2].partition(";")[0])
    program = make_program(job.model.replace(depth=1), job.recipe, 14)
    run_id = read_log(tmp_path / "run")[0]["run_id"]
    with Checkpoints(tmp_path / "run" / "checkpoints", run_id=run_id) as checkpoints:
        actual, state = checkpoints.restore_latest(program.abstract_state, warn=pytest.fail)
    assert actual == step == state.step
    assert os.listdir(tmp_path / "run" / "tensorboard")
