"""Both twins trained on the same batches: alike where they are, and caught where a step is wrong."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from evidence.faults import STEP_FAULTS
from parity.cli import main
from parity.cli.check_steps import CheckSteps
from parity.cli.check_steps import _job as job_of
from parity.cli.support.command_line import parse
from parity.measure.invisible import Sight, invisible
from parity.twins.steps import train_both
from parity.twins.steps.check_steps import check_steps, digest, stability
from parity.twins.steps.plan import RANDOM, make_plan
from parity.twins.steps.steps_report import draw_steps, print_steps, steps_to_dict
from parity.twins.steps.train_both import Curve, TypeResult
from parity.twins.steps.trainer_jax import JaxTrainer
from tests.support.refusals import one_line
from tests.support.tiny import TINY
from tests.support.tiny_tfds import png
from vit_config import ConfigError, Recipe, Rope
from vit_config.job import Job

CFG = TINY.replace(depth=1)
RECIPE = Recipe(
    epochs=2,
    batch_size=4,
    warmup_epochs=1.0,
    learning_rate=3e-3,
    final_learning_rate=1e-5,
    weight_decay=0.05,
    clip_norm=0.5,
    label_smoothing=0.1,
)
JOB = Job(CFG, RECIPE, RANDOM)
LATER = {"gradients_not_zeroed": 2}
"""Faults that do not show in the first step, and when they do."""


one_trainer = cache(JaxTrainer)


def _check(tmp_path, job=JOB, steps=4, fault=None, **options):
    with pytest.MonkeyPatch.context() as patch:
        if not fault or fault.endswith("@torch"):  # JAX's step is the same for all of these
            patch.setattr(train_both, "JaxTrainer", one_trainer)
        return check_steps("tiny", job, steps, data_dir=tmp_path, fault=fault, **options)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return _check(tmp_path_factory.mktemp("clean"))


def test_the_twins_train_alike(clean):
    assert clean.passed
    (walk,) = clean.walks
    assert list(walk.levels) == ["loss", "gradients", "exp_avg", "exp_avg_sq", "parameters"]
    assert all(level.worst.error < 1e-12 for level in walk.levels.values())
    count = len(clean.walks[0].initial.params)
    counts = {name: level.count for name, level in walk.levels.items()}
    assert counts == {"loss": 4} | {name: 4 * count for name in counts if name != "loss"}
    curve = walk.curves["parameters"]
    assert len(curve.twins) == len(curve.shadows) == 4
    assert 0 < curve.twins[-1] < 1e-13
    assert all(1e-17 < distance < 1e-13 for each in curve.shadows for distance in each)
    assert stability(walk).quiet
    start, jax, torch = (digest(each.params) for each in (walk.initial, *walk.final))
    assert clean.digests == {
        "initial": start, "jax after 4 steps": jax, "torch after 4 steps": torch,
    }  # fmt: skip
    assert start != jax  # something was learned


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "clip_norm": None, "nesterov": True},
        {"loss": "sigmoid", "accumulate": 2, "ema": 0.9, "schedule": "linear"},
    ],
    ids=["sgd", "averaged"],
)
@pytest.mark.slow
def test_other_recipes(changes, tmp_path):
    report = _check(tmp_path, Job(CFG, RECIPE.replace(**changes), RANDOM), steps=3)
    assert report.passed
    moments = {"sgd": ["momentum_buffer"]}.get(changes.get("optimizer"), ["exp_avg", "exp_avg_sq"])
    averaged = ["ema"] if "ema" in changes else []
    assert list(report.walks[0].curves) == ["parameters", *moments, *averaged]


FAULTS = [
    "loss_sum@torch", "beta2@jax", "gradients_not_zeroed@torch", "schedule_one_ahead@torch",
    pytest.param("rate_a_thousandth_more@jax", marks=pytest.mark.slow),
    pytest.param("clip_epsilon@torch", marks=pytest.mark.exhaustive),
    pytest.param("decay_without_rate@torch", marks=pytest.mark.exhaustive),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_step_is_caught_where_it_is(fault, tmp_path):
    report = _check(tmp_path, steps=4, fault=fault)
    assert not report.passed
    first = report.walks[0].failed[0]
    name = fault.partition("@")[0]
    stage = {"clipped": "moments", "learning rate": "parameters", "updated": "parameters"}
    level = stage.get(STEP_FAULTS[name].stage, STEP_FAULTS[name].stage)
    assert first.site.step == LATER.get(name, 1)
    assert first.site.level in {"moments": ("exp_avg", "exp_avg_sq")}.get(level, (level,))


def test_a_wrong_model_is_caught_in_its_gradients(tmp_path):
    report = _check(tmp_path, steps=1, fault="tanh_gelu@torch")
    assert report.walks[0].failed[0].site.level == "loss"
    assert not report.passed


def test_the_keys_biases_are_named_and_nothing_else(tmp_path):
    D = CFG.hidden_size
    assert invisible(CFG) == {"blocks.0.attn.qkv.bias": (slice(D, 2 * D),)}
    sight = Sight(CFG)
    value = np.arange(3.0 * D)
    assert sight.count == D
    np.testing.assert_array_equal(
        sight.seen("blocks.0.attn.qkv.bias", value), value[np.r_[:D, 2 * D : 3 * D]]
    )
    np.testing.assert_array_equal(sight.unseen("blocks.0.attn.qkv.bias", value), value[D : 2 * D])
    assert sight.seen("head.bias", value) is value
    turned = CFG.replace(hidden_size=40, rope=Rope(theta=100.0))
    assert invisible(turned) == {}
    assert invisible(CFG.replace(qk_norm=True)) == {"blocks.0.attn.k_norm.bias": (slice(None),)}
    assert invisible(CFG.replace(pool="map", qkv_bias=False)) == {"attn_pool.kv.bias": (slice(0, D),)}


def test_what_is_invisible_has_no_gradient(clean):
    sight = Sight(CFG)
    moments = clean.walks[0].final[0].moments["exp_avg"]
    largest = max(np.abs(value).max() for value in moments.values())
    for name, value in moments.items():
        if sight.unseen(name, value).size:
            assert np.abs(sight.unseen(name, value)).max() < 1e-15 * largest


def test_a_curve_judges_by_the_farthest_shadow_so_far():
    curve = Curve(
        [1e-13, 4e-9, 5e-9, 2e-8], [[1e-14, 2e-14], [1e-10, 5e-10], [1e-12, 1e-11], [1e-9, 1e-9]]
    )
    assert curve.limits == pytest.approx([1e-12, 5e-9, 5e-9, 1e-8])
    assert curve.failures == [4]
    assert Curve([float("nan")], [[1.0]]).failures == [1]


def test_a_chaotic_run_is_called_so():
    def walk(shadows):
        curve = Curve([0.0] * len(shadows), [[each] for each in shadows])
        return TypeResult("float64", 0, one_step=[1e-16] * len(shadows), curves={"parameters": curve})

    calm = stability(walk([1e-16, 2e-16, 3e-16]))
    assert calm.quiet
    assert "grew 3-fold" in calm.sentence()
    wild = stability(walk([1e-16, 1e-9, 0.1, 0.3]))
    assert not wild.quiet
    assert wild.lost_at == 3
    assert "from step 3 on" in wild.sentence()


def test_dropout_is_set_to_zero_and_said(tmp_path, capsys):
    job = Job(CFG.replace(dropout_head=0.5, stochastic_depth=0.0), RECIPE, RANDOM)
    plan = make_plan("tiny", job, 3, data_dir=tmp_path)
    assert plan.dropped == ("dropout_head",)
    assert plan.config.dropout_head == 0.0
    a, b = list(plan.batches()), list(plan.batches())
    assert len(a) == 3
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])


def test_classes_weigh_and_labels_are_as_in_training(tmp_path):
    several = {"labels": "several", "loss": "sigmoid_mean"}
    report = _check(tmp_path, Job(CFG, RECIPE.replace(**several), RANDOM), steps=1)
    assert report.passed
    for number, name in enumerate("aab"):
        path = tmp_path / "train" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.full((9, 7, 3), 80 * number, np.uint8)))
    shutil.copytree(tmp_path / "train", tmp_path / "test")
    recipe = RECIPE.replace(class_weights="balanced", batch_size=3)
    job = Job(CFG.replace(num_classes=2), recipe, f"folder:{tmp_path}")
    plan = make_plan("tiny", job, 1, data_dir=tmp_path)
    assert plan.recipe.class_weights == pytest.approx([3 / 4, 3 / 2])
    with pytest.raises(ConfigError) as caught:
        make_plan("tiny", replace(job, recipe=recipe.replace(**several)), 1, data_dir=tmp_path)
    one_line(caught.value, "one label for an image", 'labels = "several"')


def test_report(clean, tmp_path, capsys):
    print_steps(clean)
    said = capsys.readouterr().out
    for words in ("each step from the same state", "running freely", "EQUAL", "quiet", "biases of keys"):
        assert words in said
    draw_steps(clean, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    content = json.loads(json.dumps(steps_to_dict(clean)))
    assert content["walks"][0]["levels"]["gradients"]["limit"] == 1e-12
    assert Recipe(**content["recipe"] | {"augment": RECIPE.augment}) == RECIPE


@pytest.mark.parametrize(
    ("steps", "changes", "words"),
    [
        (0, {}, ["--steps 0", "at least 1"]),
        (2, {"kernel": "xla"}, ['kernel = "xla"', "reference"]),
        (2, {"class_weights": "balanced"}, ['class_weights = "balanced"', "batches are random"]),
        (2, {"class_weights": (1.0, 2.0)}, ["class_weights has 2 numbers", "num_classes = 11"]),
    ],
)
def test_what_cannot_be_compared(steps, changes, words, tmp_path):
    with pytest.raises(ConfigError) as caught:
        _check(tmp_path, Job(CFG, RECIPE.replace(**changes), RANDOM), steps=steps)
    one_line(caught.value, *words)


@pytest.mark.parametrize(
    ("words", "data", "batch"),
    [
        ("digits", "digits", 32),
        ("digits --data random", RANDOM, 2),
        ("mnist_exercise", RANDOM, 2),
        ("mnist_exercise --batch-size 3", RANDOM, 3),
        ("mnist_exercise --config own.json", "digits", 6),
        ("mnist_exercise --config own.json --data random", RANDOM, 6),
    ],
)
def test_data_and_batch_that_are_not_given_are_those_that_the_help_names(
    words, data, batch, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("own.json").write_text('{"recipe": {"batch_size": 6}}', encoding="utf-8")
    arguments = parse(CheckSteps, words.split(), prog="p")
    job = job_of(arguments, arguments.preset[0])
    assert (job.data, job.recipe.batch_size) == (data, batch)
    with pytest.raises(SystemExit):
        parse(CheckSteps, ["--help"], prog="p")
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "that of --config; without one random, but digits for the preset digits" in said
    assert "the recipe's; 2 for random without --config" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("digits --steps 2 --plot a.txt", "a picture ends in .png, .svg or .pdf"),
        ("digits --steps 2 --svg a.svg", "no option --svg"),
        ("digits mnist_exercise --steps 2", "expected one preset, got 2"),
        ("./w.safetensors --steps 2", "trains a preset from its initial values"),
        ("digits --steps 2 --config no.json", "no.json: no such file"),
        ("digits --steps 99999 --data-dir {place}", "99999 steps are more than the 5600 of the recipe"),
    ],
)
def test_the_command_refuses_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.safetensors").touch()
    assert main(["check-steps", *words.format(place=tmp_path / "data").split()]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
