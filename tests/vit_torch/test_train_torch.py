"""Whole training runs of the PyTorch twin: those of the JAX twin, and bit for bit their own again."""

import math
import os
import signal
import threading
import time
from importlib.metadata import version

import jax
import numpy as np
import pytest
import torch

from parity.runs.state_jax import JaxLayout, from_jax
from parity.runs.state_torch import to_torch
from tests.support.programs import each_program_once  # noqa: F401 - for every test here
from tests.support.stopping import stopping_after
from tests.support.tiny import TINY
from vit_config import CheckpointError, ConfigError, DataError, Recipe, TrainingError, ViTConfig
from vit_config.job import Job
from vit_jax.train.checkpoint import Checkpoints as JaxCheckpoints
from vit_jax.train.run import numerics as jax_numerics
from vit_jax.train.run import train as train_in_jax
from vit_jax.train.spread import make_program as make_jax_program
from vit_torch import ViT
from vit_torch.train.checkpoint import Checkpoints, read_checkpoint, to_named
from vit_torch.train.program import make_program
from vit_torch.train.run import train
from vit_torch.train.state import store
from vit_train.folder.log import read_log
from vit_train.folder.manifest import claim, make_manifest
from vit_train.task import make_task

CFG = TINY.replace(depth=1, num_classes=3, dropout_embed=0.1, dropout_mlp_inner=0.1)
STILL = CFG.replace(dropout_embed=0.0, dropout_mlp_inner=0.0)
RECIPE = Recipe.from_json("""{
    "epochs": 3, "batch_size": 8, "learning_rate": 0.003, "weight_decay": 0.05, "warmup_epochs": 1,
    "log_every_steps": 1, "checkpoint_every_epochs": 1, "accumulate": 2, "ema": 0.9,
    "eval_every_epochs": 10,
    "augment": {"shift": 0.1, "rotate": 5.0, "flip": true}
}""")
JOB = Job(CFG, RECIPE, "tfds:tiny_rectangles")
STEPS_PER_EPOCH, STEPS = 5, 15  # 47 images in batches of 8


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """An uninterrupted run and its folder."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    return train(JOB, data_dir=data_dir, run_dir=run_dir), run_dir


def losses(run_dir):
    return {e["step"]: e["loss"] for e in read_log(run_dir) if e["kind"] == "train"}


def checkpoints(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def assert_same_end(run_dir, other):
    """The last checkpoints are equal bit for bit, optimiser and average included."""
    ours, theirs = (read_checkpoint(f / "checkpoints" / f"{STEPS}.pt") for f in (run_dir, other))
    assert ours["digests"] == theirs["digests"]
    assert ours["optimizer"]["param_groups"] == theirs["optimizer"]["param_groups"]
    assert losses(run_dir) == losses(other)


def test_a_run_learns_and_leaves_everything(whole):
    trained, run_dir = whole
    assert trained.step == STEPS
    assert trained.test.count == 19
    assert all(value.dtype == np.float32 for value in trained.params.values())
    assert sorted(losses(run_dir)) == list(range(1, STEPS + 1))
    assert losses(run_dir)[STEPS] < losses(run_dir)[1]
    start, *_, end = read_log(run_dir)
    assert (start["kind"], start["framework"], start["devices"]) == ("start", "torch", ["cpu"])
    assert (end["kind"], end["count"]) == ("test", 19)
    assert checkpoints(run_dir) == ["10.pt", "15.pt", "5.pt"]


def test_a_checkpoint_says_all_about_its_run(whole):
    trained, run_dir = whole
    content = torch.load(run_dir / "checkpoints" / "15.pt", weights_only=True)
    assert (content["format"], content["version"], content["step"]) == (
        "vit-parity training state",
        1,
        STEPS,
    )
    assert content["run_id"] == read_log(run_dir)[0]["run_id"]
    assert ViTConfig.from_json(content["schema"]) == CFG
    assert Recipe.from_json(content["recipe"]) == RECIPE
    assert content["data"] == {"name": JOB.data, "fingerprint": trained.dataset.fingerprint}
    names = [name for group in content["optimizer"]["param_groups"] for name in group["param_names"]]
    assert sorted(names) == sorted(content["model"]) == sorted(content["ema"])
    assert content["digests"].keys() == to_named(content).keys()
    for name, value in trained.params.items():  # the average is what is exported
        np.testing.assert_array_equal(value, content["ema"][name].numpy(), err_msg=name)
        assert not np.array_equal(value, content["model"][name].numpy())


def test_the_seed_draws_the_initial_parameters(data_dir, tmp_path):
    trained = train(JOB, data_dir=data_dir, run_dir=tmp_path, stop_after=0)
    torch.manual_seed(RECIPE.seed)
    for name, value in ViT(CFG).state_dict().items():
        np.testing.assert_array_equal(trained.params[name], value.numpy(), err_msg=name)


def test_batches_reach_torch_as_they_are(data_dir):
    task = make_task(JOB, data_dir)
    program = make_program(CFG, RECIPE, STEPS_PER_EPOCH)
    batches = task.batches(3)
    batch = next(batches)
    batches.close()
    placed = program.place_batch(batch)
    assert placed["image"].shape == (8, 3, 21, 15)
    np.testing.assert_array_equal(placed["image"].permute(0, 2, 3, 1).numpy(), batch["image"])
    np.testing.assert_array_equal(placed["label"].numpy(), batch["label"])


RECIPES = {
    "adamw": RECIPE,
    "plain": RECIPE.replace(accumulate=1, ema=None, clip_norm=0.5, label_smoothing=0.1),
    "sgd": RECIPE.replace(optimizer="sgd", momentum=0.8, nesterov=True, learning_rate=0.1),
}


def carry_over(job, data_dir, jax_dir, torch_dir):
    """The newest state of a JAX run, as the PyTorch run of the same job."""
    with jax_numerics(job.recipe):
        manifest = make_manifest(job, make_task(job, data_dir).dataset.fingerprint)
        ours = make_jax_program(
            job.model, job.recipe, STEPS_PER_EPOCH, devices=tuple(jax.local_devices()[:1])
        )
        with JaxCheckpoints(jax_dir / "checkpoints", run_id=manifest.run_id) as there:
            _, state = there.restore_latest(ours.abstract_state, warn=pytest.fail)
        common = from_jax(JaxLayout(job.model), state)
    theirs = make_program(job.model, job.recipe, STEPS_PER_EPOCH).initialise()
    to_torch(common, theirs.model, theirs.optimizer, theirs.ema, job.recipe)
    torch_dir.mkdir()
    claim(torch_dir, manifest)
    about = {"run_id": manifest.run_id, "job": job, "fingerprint": manifest["data"]["fingerprint"]}
    here = Checkpoints(torch_dir / "checkpoints", **about)
    here.save(common.step, store(theirs._replace(step=common.step)))


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "adamw" else [pytest.mark.exhaustive]) for k in RECIPES]
)
def test_from_the_same_start_the_twins_train_alike(data_dir, tmp_path, kind):
    """The same batches, losses, gradients and scores, in float64: the initial state is carried over."""
    recipe = RECIPES[kind].replace(
        dtype="float64", validation_fraction=0.1, eval_every_epochs=1, watch_test=True, epochs=2
    )
    job, ours, theirs = Job(STILL, recipe, JOB.data), tmp_path / "jax", tmp_path / "torch"
    one = tuple(jax.local_devices()[:1])
    train_in_jax(job, data_dir=data_dir, run_dir=ours, stop_after=0, devices=one)
    carry_over(job, data_dir, ours, theirs)
    whole = train_in_jax(job, data_dir=data_dir, run_dir=ours, devices=one)
    again = train(job, data_dir=data_dir, run_dir=theirs)
    assert (whole.step, again.step) == (10, 10)
    events = [
        [
            {name: x for name, x in event.items() if name not in ("time", "images_per_second")}
            for event in read_log(run_dir)
            if event["kind"] != "start"
        ]
        for run_dir in (ours, theirs)
    ]
    assert [(e["kind"], e["step"]) for e in events[0]] == [(e["kind"], e["step"]) for e in events[1]]
    assert {e["kind"] for e in events[0]} == {"train", "validation", "test"}
    for a, b in zip(*events, strict=True):
        assert a.keys() == b.keys()
        for name in a.keys() - {"kind", "data_wait"}:
            assert b[name] == pytest.approx(a[name], rel=1e-12), (a["kind"], a["step"], name)


@pytest.mark.parametrize("stop_at", [7, 10])
def test_a_resumed_run_is_bit_for_bit_the_whole_one(whole, data_dir, tmp_path, monkeypatch, stop_at):
    trained, run_dir = whole
    with monkeypatch.context() as patch:
        stopping_after(stop_at, patch)
        stopped = train(JOB, data_dir=data_dir, run_dir=tmp_path / "run")
    assert (stopped.step, stopped.test) == (stop_at, None)
    torch.manual_seed(99)  # whatever the generator was used for meanwhile
    resumed = train(JOB, data_dir=data_dir, run_dir=tmp_path / "run")
    assert resumed.test == trained.test
    assert_same_end(run_dir, tmp_path / "run")


@pytest.mark.parametrize("changes", [{"optimizer": "sgd"}, {"dtype": "float64"}, {"dtype": "bfloat16"}])
def test_other_optimisers_and_types_are_resumed_exactly(data_dir, tmp_path, changes):
    job = Job(CFG, RECIPE.replace(**changes), JOB.data)
    trained = train(job, data_dir=data_dir, run_dir=tmp_path / "whole")
    dtype = np.float64 if changes.get("dtype") == "float64" else np.float32
    assert all(value.dtype == dtype for value in trained.params.values())
    train(job, data_dir=data_dir, run_dir=tmp_path / "run", stop_after=4)
    train(job, data_dir=data_dir, run_dir=tmp_path / "run")
    assert_same_end(tmp_path / "whole", tmp_path / "run")
    assert all(map(math.isfinite, losses(tmp_path / "run").values()))


def test_bfloat16_computes_in_bfloat16():
    program = make_program(CFG, RECIPE.replace(dtype="bfloat16"), STEPS_PER_EPOCH)
    images = np.random.default_rng(0).standard_normal((4, 21, 15, 3)).astype(np.float32)
    batch = {"image": images, "label": np.zeros(4, np.int32), "mask": np.ones(4, bool)}
    placed = program.place_batch(batch)
    state = program.initialise()
    narrow = program.eval_step(state.averaged, placed)["loss"]
    usual = make_program(CFG, RECIPE, STEPS_PER_EPOCH)
    wide = usual.eval_step(state.averaged, usual.place_batch(batch))["loss"]
    assert narrow.item() == pytest.approx(wide.item(), rel=0.02)
    assert narrow.item() != wide.item()
    assert state.averaged["head.weight"].dtype == torch.float32


def test_a_run_ends_where_it_is_told_to_and_goes_on(whole, data_dir, tmp_path):
    trained, run_dir = whole
    here = {"data_dir": data_dir, "run_dir": tmp_path / "run"}
    for stop_after, left in ((0, ["0.pt"]), (0, ["0.pt"]), (3, ["0.pt", "3.pt"])):
        stopped = train(JOB, **here, stop_after=stop_after)
        assert (stopped.step, stopped.test) == (stop_after, None)
        assert checkpoints(tmp_path / "run") == left
    assert train(JOB, **here, stop_after=2).step == 3  # it is further already
    assert checkpoints(tmp_path / "run") == ["0.pt", "3.pt"]
    ended = train(JOB, **here, stop_after=1000)
    assert (ended.step, ended.test) == (STEPS, trained.test)
    assert_same_end(run_dir, tmp_path / "run")
    with pytest.raises(ConfigError, match="stop_after = -1: "):
        train(JOB, data_dir=data_dir, run_dir=tmp_path / "other", stop_after=-1)
    assert not (tmp_path / "other").exists()


def test_a_damaged_checkpoint_costs_only_its_steps(whole, data_dir, tmp_path, capsys):
    _, run_dir = whole
    here = {"data_dir": data_dir, "run_dir": tmp_path / "run"}
    train(JOB, **here, stop_after=8)
    newest = tmp_path / "run" / "checkpoints" / "8.pt"
    content = bytearray(newest.read_bytes())
    moment = to_named(read_checkpoint(newest))["optimizer.head.weight.exp_avg"]
    content[content.index(moment.numpy().tobytes()) + 5] ^= 1
    newest.write_bytes(content)
    train(JOB, **here)
    said = " ".join(capsys.readouterr().out.split())
    assert "is damaged and skipped: the bytes of optimizer.head.weight.exp_avg do not match" in said
    assert "continuing from step 5" in said
    assert "damaged-8.pt" in checkpoints(tmp_path / "run")
    assert_same_end(run_dir, tmp_path / "run")


def test_another_job_is_refused(whole, data_dir):
    _, run_dir = whole
    before = sorted(run_dir.rglob("*"))
    with pytest.raises(CheckpointError, match=r"holds another run: recipe\.seed = 0 there, 1 here"):
        train(Job(CFG, RECIPE.replace(seed=1), JOB.data), data_dir=data_dir, run_dir=run_dir)
    assert sorted(run_dir.rglob("*")) == before


def test_a_run_of_the_other_framework_is_refused(whole, data_dir, tmp_path):
    _, run_dir = whole
    one = tuple(jax.local_devices()[:1])
    with pytest.raises(CheckpointError, match=r"run of PyTorch, which JAX cannot .*convert-run`"):
        train_in_jax(JOB, data_dir=data_dir, run_dir=run_dir, devices=one)
    train_in_jax(JOB, data_dir=data_dir, run_dir=tmp_path / "run", devices=one, stop_after=0)
    assert checkpoints(tmp_path / "run") == ["0"]
    with pytest.raises(CheckpointError, match=r"run of JAX, which PyTorch cannot .*convert-run`"):
        train(JOB, data_dir=data_dir, run_dir=tmp_path / "run")


def test_another_version_of_torch_is_said(data_dir, tmp_path, capsys, monkeypatch):
    here = {"data_dir": data_dir, "run_dir": tmp_path / "run", "stop_after": 0}
    train(JOB, **here)
    assert "no longer bit for bit" not in capsys.readouterr().out
    monkeypatch.setattr("vit_train.folder.manifest.version", lambda name: "99.0")
    train(JOB, **here)
    said = " ".join(capsys.readouterr().out.split())
    assert f"continuing with torch 99.0, the run began with {version('torch')}" in said
    assert "jax" not in said


def test_a_loss_that_is_not_finite_stops_the_run(data_dir, tmp_path):
    recipe = RECIPE.replace(learning_rate=1e30, warmup_epochs=0.0, log_every_steps=4)
    with pytest.raises(TrainingError, match=r"^step [234]: the loss is nan .* lower learning_rate"):
        train(Job(CFG, recipe, JOB.data), data_dir=data_dir, run_dir=tmp_path / "run")
    assert checkpoints(tmp_path / "run") == []


def test_metrics_are_looked_at_only_now_and_then(data_dir, tmp_path):
    recipe = RECIPE.replace(log_every_steps=4, checkpoint_every_epochs=3)
    train(Job(CFG, recipe, JOB.data), data_dir=data_dir, run_dir=tmp_path / "some")
    # the last step is always logged; a line is the mean since the last one
    assert list(losses(tmp_path / "some")) == [4, 8, 12, 15]


def test_means_are_those_of_every_step(whole, data_dir, tmp_path):
    _, run_dir = whole
    recipe = RECIPE.replace(log_every_steps=4, checkpoint_every_epochs=3)
    train(Job(CFG, recipe, JOB.data), data_dir=data_dir, run_dir=tmp_path / "some", stop_after=8)
    each = losses(run_dir)
    for step, mean in losses(tmp_path / "some").items():
        assert mean == pytest.approx(np.mean([each[s] for s in range(step - 3, step + 1)]), rel=1e-6)


def test_what_does_not_fit_is_refused_before_anything_is_written(data_dir, tmp_path):
    for job, error, message in (
        (Job(CFG.replace(num_classes=10), RECIPE, JOB.data), DataError, "add --model.num-classes 3"),
        (Job(CFG, RECIPE.replace(kernel="xla"), JOB.data), ConfigError, "the reference kernel"),
    ):
        with pytest.raises(error, match=message):
            train(job, data_dir=data_dir, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_stops_on_a_real_signal(data_dir, tmp_path):
    job = Job(CFG, RECIPE.replace(epochs=100_000, checkpoint_every_epochs=100_000), JOB.data)
    log = tmp_path / "run" / "log.jsonl"

    def interrupt():
        deadline = time.monotonic() + 300
        while not (log.is_file() and '"train"' in log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    stopped = train(job, data_dir=data_dir, run_dir=tmp_path / "run")
    thread.join()
    assert 0 < stopped.step < 500_000
    assert checkpoints(tmp_path / "run") == [f"{stopped.step}.pt"]
