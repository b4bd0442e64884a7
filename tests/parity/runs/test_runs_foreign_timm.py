"""timm's own checkpoints: read, carried on in optax to the same next step."""

import numpy as np
import pytest
import torch

from parity.runs.foreign import read_foreign, recognise
from tests.support.runs_foreign import (
    ARGS,
    ASKED,
    STEPS,
    Training,
    arrays,
    assert_near,
    edited,
    error,
    next_in_optax,
    ours,
    redraw,
    save_timm,
    timm,
    timm_file,
    timm_run,
)
from vit_config import Recipe
from vit_config.errors import UnstatedError

SGD = {"opt": "sgd", "model_ema": False, "clip_grad": None, "weight_decay": 0.02}
CASES = {
    "adamw": {},
    "adam": {"opt": "adam", "sched": "step", "decay_epochs": 1.0, "decay_rate": 0.5},
    "no decay": {"weight_decay": 0.0, "clip_grad": None, "model_ema": False},
    "by updates": {"sched_on_updates": True, "warmup_prefix": True},
    "sgd": SGD,
    "registers": {"model_kwargs": {**ARGS["model_kwargs"], "reg_tokens": 2, "class_token": False,
                                   "global_pool": "avg", "fc_norm": True}},
}  # fmt: skip


def schedule(run, epoch):
    run.scheduler.step(epoch)
    run.scheduler.step_update(run.step)


@pytest.mark.parametrize("case", CASES)
def test_the_next_step_is_timms(case, tmp_path, x64):
    live, path = timm_file(tmp_path / "timm", **CASES[case])
    assert recognise(path) == "timm"
    spe = STEPS if case == "sgd" else None
    run = read_foreign(path, steps_per_epoch=spe)
    assert run.state.step == 3 * STEPS
    assert run.steps_per_epoch == STEPS
    assert_near(run.state.params, ours(path, live.params()))

    schedule(live, 3)
    grads = ours(path, live.gradients())
    live.update()
    after = next_in_optax(run, grads)
    assert_near(after.params, ours(path, live.params()))
    if live.ema is not None:
        assert_near(after.ema, ours(path, arrays(live.ema.module)))


def test_the_recipe_is_what_the_arguments_say(tmp_path):
    _, path = timm_file(tmp_path)
    run = read_foreign(path)
    assert run.recipe == Recipe(
        epochs=6, batch_size=4, seed=42, optimizer="adamw", learning_rate=3e-3, weight_decay=0.05,
        clip_norm=0.7, clip_eps=1e-6, label_smoothing=0.1, ema=0.9, schedule="cosine",
        schedule_unit="epoch", warmup_epochs=2.0, warmup_start=1e-4, warmup_overlaps=True,
        final_learning_rate=1e-5, dtype="float64",
    )  # fmt: skip
    assert run.config.depth == 2
    assert run.config.image_size == (12, 6)
    (note,) = run.notes
    assert "order of data" in note
    assert "timm" in note


def test_losses_clipping_and_parts_that_timm_says(tmp_path):
    changes = {
        "bce_loss": True,
        "bce_sum": True,
        "clip_grad": None,
        "grad_accum_steps": 2,
        "world_size": 3,
    }
    _, path = timm_file(tmp_path / "bce", drop=0.1, drop_path=0.2, **changes)
    run = read_foreign(path)
    recipe = run.recipe
    assert (recipe.loss, recipe.clip_norm) == ("sigmoid", None)
    assert (recipe.batch_size, recipe.accumulate) == (24, 2)
    assert (run.config.dropout_head, run.config.stochastic_depth) == (0.1, 0.2)
    _, path = timm_file(tmp_path / "plain", bce_loss=True, smoothing=0.0)
    assert read_foreign(path).recipe.loss == "softmax"  # as timm's script decides


def test_what_else_timm_says_is_taken_or_named(tmp_path):
    _, path = timm_file(tmp_path)
    said = {"bce_loss": True, "bce_target_thresh": 0.2, "model_ema_warmup": True, "reprob": 0.25}

    def change(content):
        vars(content["args"]).update(said)
        content["amp_scaler"] = {"scale": 2.0}

    run = read_foreign(edited(path, change))
    assert (run.recipe.loss, run.recipe.label_threshold) == ("sigmoid_mean", 0.2)
    assert run.recipe.ema_warmup
    assert "changes to training images are not carried: reprob = 0.25" in " ".join(run.notes)
    assert "(amp_scaler) is not carried" in " ".join(run.notes)


def test_files_of_old_count_the_epoch_that_is_next(tmp_path):
    _, path = timm_file(tmp_path)

    def change(content):
        content.update(version=1, epoch=content["epoch"] + 1)

    assert read_foreign(edited(path, change)).steps_per_epoch == STEPS


def test_names_in_the_groups_are_believed(tmp_path):
    model = redraw(timm.create_model(ARGS["model"], num_classes=7, **ARGS["model_kwargs"])).train()
    named = list(model.named_parameters())
    odd = [pair for pair in named if "mlp" in pair[0]]
    rest = [pair for pair in named if "mlp" not in pair[0]][::-1]
    groups = [{"params": odd, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    live = Training(model, optimizer)
    for _ in range(STEPS):
        live.update()
    path = save_timm(live, None, tmp_path)
    recipe = Recipe(
        epochs=4, batch_size=4, seed=1, learning_rate=1e-3, schedule="constant", warmup_epochs=0.0,
        clip_norm=None, loss="softmax", label_smoothing=0.1, dtype="float64",
    )  # fmt: skip
    run = read_foreign(path, recipe=recipe, given=ASKED)
    assert run.recipe.decay == "listed"
    assert set(run.recipe.decayed) == {name for name, _ in odd}
    moments = {name: optimizer.state[value]["exp_avg"].numpy() for name, value in named}
    assert_near(run.state.moments["exp_avg"], moments)


def test_half_precision_is_widened_and_its_type_asked_for(tmp_path):
    run, args = timm_run(0, model_ema=False)
    model = run.model.to(torch.bfloat16)
    optimizer = timm.optim.create_optimizer_v2(model, "adamw", lr=3e-3, weight_decay=0.05)
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    optimizer.step()
    args.amp, args.model_dtype, args.sched = False, "bfloat16", "none"
    path = save_timm(Training(model, optimizer, step=STEPS), args, tmp_path)
    assert "leaves open dtype" in error(UnstatedError, lambda: read_foreign(path))
    read = read_foreign(path, recipe=Recipe(dtype="bfloat16"))
    value = read.state.moments["exp_avg_sq"]["head.weight"]
    moment = optimizer.state[model.head.weight]["exp_avg_sq"]
    assert value.dtype == np.float32
    assert np.array_equal(value, moment.float().numpy())
    assert any("were bfloat16 there" in note for note in read.notes)
