"""Every schedule of a recipe is that of torch, optax, timm and Hugging Face, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch.optim import lr_scheduler

from parity.porting.reading.libraries.peers import import_timm
from vit_config import Recipe
from vit_config.schedule import learning_rate

pytestmark = pytest.mark.quick

PEAK, FINAL, EPOCHS, PER_EPOCH, WARMUP = 2.0, 0.5, 6, 7, 2
TOTAL = EPOCHS * PER_EPOCH
STEPS = np.arange(TOTAL)
BASE = Recipe(epochs=EPOCHS, learning_rate=PEAK)
WARM = BASE.replace(warmup_epochs=float(WARMUP), warmup_start=0.0)


def ours(recipe, steps=STEPS):
    return learning_rate(recipe, steps, PER_EPOCH)


def assert_same(recipe, expected):
    """To 1e-13 of the peak, in numpy and under jax.jit."""
    expected = np.asarray(expected, np.float64)
    rates = jax.jit(lambda step: learning_rate(recipe, step, PER_EPOCH, jnp))(jnp.asarray(STEPS))
    assert rates.dtype == jnp.float64
    for actual in (ours(recipe), rates):
        np.testing.assert_allclose(actual, expected, rtol=1e-13, atol=1e-13 * PEAK)


def _optimizer():
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)


def by_torch(make, count=TOTAL):
    """The rates of a torch scheduler, asked once after each update."""
    optimizer = _optimizer()
    scheduler, rates = make(optimizer), []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(rates)


def by_timm(make, by_epoch=False):
    """The rates of a timm scheduler, asked as its training script does."""
    optimizer = _optimizer()
    scheduler, rates = make(optimizer), []
    for epoch in range(EPOCHS):
        for update in range(PER_EPOCH):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step_update(epoch * PER_EPOCH + update + 1)
        scheduler.step(epoch + 1)
    assert scheduler.t_in_epochs == by_epoch
    return np.array(rates)


def by_epochs(rates):
    """One rate an epoch, for each of its steps."""
    return np.repeat(rates, PER_EPOCH)


def test_cosine_is_torchs_and_optaxs(x64):
    recipe = BASE.replace(final_learning_rate=FINAL)
    assert_same(recipe, by_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL, FINAL)))
    assert_same(recipe, optax.cosine_decay_schedule(PEAK, TOTAL, alpha=FINAL / PEAK)(STEPS))
    per_epoch = by_torch(lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS, FINAL), EPOCHS)
    assert_same(recipe.replace(schedule_unit="epoch"), by_epochs(per_epoch))


def test_linear_is_torchs_and_optaxs(x64):
    recipe = BASE.replace(schedule="linear", final_learning_rate=FINAL)
    assert_same(recipe, optax.linear_schedule(PEAK, FINAL, TOTAL)(STEPS))
    assert_same(
        recipe, by_torch(lambda o: lr_scheduler.LinearLR(o, 1.0, FINAL / PEAK, total_iters=TOTAL))
    )


@pytest.mark.parametrize("start", [0.0, 0.3])
def test_a_warm_cosine_is_optaxs(start, x64):
    recipe = WARM.replace(final_learning_rate=FINAL, warmup_start=start)
    schedule = optax.warmup_cosine_decay_schedule(start, PEAK, WARMUP * PER_EPOCH, TOTAL, FINAL)
    assert_same(recipe, [schedule(step) for step in STEPS.tolist()])


@pytest.mark.parametrize("unit", ["step", "epoch"])
def test_a_warm_cosine_is_torchs_in_sequence(unit, x64):
    count, warmup = (EPOCHS, WARMUP) if unit == "epoch" else (TOTAL, WARMUP * PER_EPOCH)

    def make(optimizer):
        parts = [
            lr_scheduler.LinearLR(optimizer, 0.1, total_iters=warmup),
            lr_scheduler.CosineAnnealingLR(optimizer, count - warmup, FINAL),
        ]
        return lr_scheduler.SequentialLR(optimizer, parts, [warmup])

    recipe = WARM.replace(final_learning_rate=FINAL, warmup_start=0.1 * PEAK, schedule_unit=unit)
    rates = by_torch(make, count)
    assert_same(recipe, by_epochs(rates) if unit == "epoch" else rates)


def test_hugging_faces_schedules(x64):
    import_timm()
    from transformers import optimization as theirs

    counts = {"num_warmup_steps": WARMUP * PER_EPOCH, "num_training_steps": TOTAL}
    warmup = {"num_warmup_steps": WARMUP * PER_EPOCH}
    for changes, function, entries in [
        ({}, "get_cosine_schedule_with_warmup", counts),
        (
            {"final_learning_rate": FINAL},
            "get_cosine_with_min_lr_schedule_with_warmup",
            {**counts, "min_lr": FINAL},
        ),
        ({"schedule": "linear"}, "get_linear_schedule_with_warmup", counts),
        (
            {"schedule": "linear", "final_learning_rate": FINAL},
            "get_polynomial_decay_schedule_with_warmup",
            {**counts, "lr_end": FINAL},
        ),
        ({"schedule": "constant"}, "get_constant_schedule_with_warmup", warmup),
        (
            {"schedule": "rsqrt", "rsqrt_epochs": 3.0},
            "get_inverse_sqrt_schedule",
            {**warmup, "timescale": 3 * PER_EPOCH},
        ),
    ]:
        rates = by_torch(lambda o, f=function, e=entries: getattr(theirs, f)(o, **e))
        assert_same(WARM.replace(**changes), rates)


@pytest.mark.parametrize("unit", ["step", "epoch"])
@pytest.mark.parametrize("overlaps", [False, True], ids=["prefix", "overlapping"])
@pytest.mark.parametrize("start", [0.0, 0.3])
def test_timms_cosine(unit, overlaps, start, x64):
    import_timm()
    from timm.scheduler import CosineLRScheduler

    size = 1 if unit == "epoch" else PER_EPOCH
    recipe = WARM.replace(
        final_learning_rate=FINAL, warmup_start=start, warmup_overlaps=overlaps, schedule_unit=unit
    )
    rates = by_timm(
        lambda o: CosineLRScheduler(
            o,
            (EPOCHS if overlaps else EPOCHS - WARMUP) * size,  # a prefix comes on top of it
            lr_min=FINAL,
            warmup_t=WARMUP * size,
            warmup_lr_init=start,
            warmup_prefix=not overlaps,
            t_in_epochs=unit == "epoch",
        ),
        by_epoch=unit == "epoch",
    )
    assert_same(recipe, rates)


@pytest.mark.parametrize("unit", ["step", "epoch"])
@pytest.mark.parametrize("overlaps", [False, True], ids=["prefix", "overlapping"])
def test_timms_steps(unit, overlaps, x64):
    import_timm()
    from timm.scheduler import StepLRScheduler

    size = 1 if unit == "epoch" else PER_EPOCH
    recipe = WARM.replace(
        schedule="step", step_epochs=1.0, step_factor=0.3, warmup_overlaps=overlaps, schedule_unit=unit
    )
    rates = by_timm(
        lambda o: StepLRScheduler(
            o,
            size,
            0.3,
            warmup_t=WARMUP * size,
            warmup_prefix=not overlaps,
            t_in_epochs=unit == "epoch",
        ),
        by_epoch=unit == "epoch",
    )
    assert_same(recipe, rates)


def test_timms_own_factory_makes_the_documented_one(x64):
    """By epoch, from 1e-5, the warm-up hiding the beginning of the schedule."""
    import_timm()
    from timm.scheduler import create_scheduler_v2

    rates = by_timm(
        lambda o: create_scheduler_v2(o, num_epochs=EPOCHS, warmup_epochs=WARMUP)[0], by_epoch=True
    )
    assert_same(WARM.replace(warmup_start=1e-5, warmup_overlaps=True, schedule_unit="epoch"), rates)


@pytest.mark.parametrize("unit", ["step", "epoch"])
def test_steps_are_torchs(unit, x64):
    recipe = BASE.replace(schedule="step", step_epochs=2.0, step_factor=0.3, schedule_unit=unit)
    if unit == "step":
        rates = by_torch(lambda o: lr_scheduler.StepLR(o, 2 * PER_EPOCH, 0.3))
    else:
        rates = by_epochs(by_torch(lambda o: lr_scheduler.StepLR(o, 2, 0.3), EPOCHS))
    assert_same(recipe, rates)


def test_a_step_comes_after_a_whole_number_of_steps():
    """0.7 * 10 is 7.000000000000001: not rounded, the first step would come one late."""
    recipe = BASE.replace(schedule="step", step_epochs=0.7)
    rates = learning_rate(recipe, np.arange(20), 10)
    np.testing.assert_allclose(rates, PEAK * 0.1 ** (np.arange(20) // 7))


def test_big_visions_schedules(x64):
    """Their formulas, with the warm-up multiplied on: from zero, over the steps of the warm-up."""
    warmup, timescale = WARMUP * PER_EPOCH, 3 * PER_EPOCH
    progress = np.clip((STEPS - warmup) / (TOTAL - warmup), 0.0, 1.0)
    rising = np.minimum(1.0, STEPS / warmup)
    for changes, rates in [
        ({}, PEAK * 0.5 * (1.0 + np.cos(np.pi * progress))),
        ({"schedule": "linear"}, PEAK * (1.0 - progress)),
        (
            {"schedule": "rsqrt", "rsqrt_epochs": 3.0},
            np.where(rising < 1.0, PEAK, PEAK / np.sqrt(1 + np.maximum(STEPS - warmup, 0) / timescale)),
        ),
    ]:
        assert_same(WARM.replace(**changes), rates * rising)


def test_schedule_by_hand():
    recipe = Recipe(epochs=4, warmup_epochs=1.0, learning_rate=2.0, final_learning_rate=0.5)
    rates = learning_rate(recipe, np.arange(40), 10)
    np.testing.assert_allclose(rates[:10], 2.0 * np.arange(1, 11) / 10)
    assert rates[10] == 2.0  # the cosine starts at the peak
    assert rates[25] == pytest.approx(1.25)  # and is half way down in the middle
    assert rates[39] > 0.5  # it would reach the end one step after the last
    assert learning_rate(recipe, 40, 10) == pytest.approx(0.5)


def test_constant():
    np.testing.assert_array_equal(ours(BASE.replace(schedule="constant")), np.full(TOTAL, PEAK))


@pytest.mark.parametrize("unit", ["step", "epoch"])
def test_reaching_the_end_is_a_linspace(unit, x64):
    recipe = WARM.replace(
        schedule="linear", final_learning_rate=FINAL, reach_final=True, schedule_unit=unit
    )
    size = 1 if unit == "epoch" else PER_EPOCH
    down = np.linspace(PEAK, FINAL, (EPOCHS - WARMUP) * size)
    up = np.arange(WARMUP * size) / (WARMUP * size) * PEAK
    rates = np.concatenate([up, down])
    assert_same(recipe, by_epochs(rates) if unit == "epoch" else rates)
    cosine = FINAL + (PEAK - FINAL) * 0.5 * (1.0 + np.cos(np.linspace(0.0, np.pi, TOTAL)))
    assert_same(BASE.replace(final_learning_rate=FINAL, reach_final=True), cosine)


def test_a_warm_up_without_a_start_reaches_the_peak_in_its_last_step(x64):
    recipe = WARM.replace(warmup_start=None, schedule="constant")
    count = WARMUP * PER_EPOCH
    assert_same(recipe, np.minimum(PEAK * (STEPS + 1) / count, PEAK))
    by_epoch = np.minimum(PEAK * (np.arange(EPOCHS) + 1) / WARMUP, PEAK)
    assert_same(recipe.replace(schedule_unit="epoch"), by_epochs(by_epoch))
    # as torch's LinearLR that starts at one share
    rates = by_torch(lambda o: lr_scheduler.LinearLR(o, 1 / count, total_iters=count - 1))
    assert_same(recipe, rates)


def test_one_step_after_the_warm_up_runs_at_the_peak():
    recipe = Recipe(epochs=1, warmup_epochs=0.5, reach_final=True)
    np.testing.assert_allclose(learning_rate(recipe, np.arange(2), 2), 1e-3)


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_the_end_keeps_its_digits_in_float32(kind):
    """What JAX computes in float32 and the PyTorch twin in float64 are the same to float32's grain."""
    recipe = Recipe(epochs=100, schedule=kind)
    steps = np.arange(100_000)
    rates = learning_rate(recipe, jnp.asarray(steps), 1000, jnp)
    assert rates.dtype == jnp.float32
    np.testing.assert_allclose(rates, learning_rate(recipe, steps, 1000), rtol=1e-6)


def test_a_warm_up_may_be_a_share_of_the_run():
    share = BASE.replace(warmup_fraction=WARMUP / EPOCHS, warmup_start=0.0)
    np.testing.assert_array_equal(ours(share), ours(WARM))
    assert share.replace(epochs=3).warmup == 1.0


def test_a_shorter_run_keeps_the_share_of_a_warm_up_that_does_not_fit():
    recipe = Recipe(epochs=200, warmup_epochs=10.0, warmup_start=0.0)
    assert recipe.shortened(3).warmup_epochs == pytest.approx(0.15)
    assert recipe.shortened(11) == recipe
    by_epoch = recipe.replace(schedule_unit="epoch", warmup_overlaps=True)
    short = by_epoch.shortened(10)
    assert (short.epochs, short.warmup, short.warmup_overlaps) == (10, 0.0, False)


def test_a_run_of_before_such_a_field_is_the_same_run():
    assert "warmup_fraction" not in Recipe().to_json()
    share = Recipe(warmup_fraction=0.1)
    assert Recipe.from_json(share.to_json()) == share
