"""Faults before the optimiser's update - loss, gradients, clipping, learning rate - and what is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import optax
import pytest
import torch
from torch import nn

from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.names import PlaceVerdict
from parity.verifier.recordings.steps.segments import step_segment
from tests.parity.verifier.recordings.test_step_causes import (
    BATCH,
    CLASSES,
    RATE,
    STEPS,
    adamw,
    both,
    first_difference,
    of_optax,
    only,
    run_jax,
    run_torch,
    verdict,
)
from tests.parity.verifier.recordings.test_step_causes_begun import changed

cross = nn.functional.cross_entropy


def smoothed_over_wrong(logits, labels):
    log_p = torch.log_softmax(logits, -1)
    right = log_p.gather(1, labels[:, None])[:, 0]
    return -(0.9 * right + 0.1 * (log_p.sum(1) - right) / (CLASSES - 1)).mean()


def binary(logits, labels, **options):
    one_hot = nn.functional.one_hot(labels, CLASSES).to(logits.dtype)
    return nn.functional.binary_cross_entropy_with_logits(logits, one_hot, **options)


LOSSES = {
    "sum": ("loss-reduction", lambda z, y: cross(z, y, reduction="sum")),
    "wrong count": ("loss-reduction", lambda z, y: cross(z, y, reduction="sum") / (2 * BATCH)),
    "smoothing": ("label-smoothing", lambda z, y: cross(z, y, label_smoothing=0.1)),
    "smoothing over the wrong": ("label-smoothing", smoothed_over_wrong),
    "temperature": ("logit-scale", lambda z, y: cross(z / 0.5, y)),
}


@both
@pytest.mark.parametrize("fault", LOSSES)
def test_another_loss(tmp_path, dtype, fault):
    name, loss = LOSSES[fault]
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_torch(tmp_path / "b.trace", dtype, loss=loss)
    cause = only(a, b, name, "loss")
    if "smoothing" in fault:
        spread = f"the {CLASSES - 1} wrong" if "wrong" in fault else f"all {CLASSES}"
        assert cause.b == f"smoothing: 0.1 over {spread} classes"


def test_sigmoid_for_softmax_and_its_mean(tmp_path):
    summed = lambda z, y: binary(z, y, reduction="sum") / BATCH  # noqa: E731
    a = run_torch(tmp_path / "a.trace", loss=summed)
    assert only(run_torch(tmp_path / "b.trace"), a, "loss-function", "loss").where == ()
    cause = only(a, run_torch(tmp_path / "c.trace", loss=binary), "loss-reduction", "loss")
    assert cause.b == "reduction: mean over batch and classes"


def focal(logits, labels, power=1.0):
    each = cross(logits, labels, reduction="none")
    return (each * (1 - torch.exp(-each)) ** power).mean()


@both
def test_a_loss_that_nobody_knows_is_unknown(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype)
    scaled = [lambda z, y, f=factor: f * cross(z, y) for factor in (1.0173, 0.9431, 1.2345)]
    others = [lambda z, y, p=power: focal(z, y, p) for power in (0.5, 1.0, 2.0)]
    for number, loss in enumerate((*scaled, *others)):
        outcome = verdict(a, run_torch(tmp_path / f"{number}.trace", dtype, loss=loss))
        assert not outcome.causes
        assert outcome.unknown is not None
        if dtype == "float64":
            assert "b is not what any known rule computes" in outcome.unknown


@both
def test_gradients(tmp_path, dtype):
    a = run_torch(tmp_path / "a.trace", dtype)
    b = run_torch(tmp_path / "b.trace", dtype, zero=False)
    assert only(a, b, "gradients-kept", "gradients").b == "gradients of the step before: still in it"
    a, b = (
        run_torch(tmp_path / f"clipped {zero}.trace", dtype, zero=zero, clip=torch_clip(0.05))
        for zero in (True, False)
    )
    only(a, b, "gradients-kept", "gradients")  # those that were clipped in place

    class Times(torch.autograd.Function):
        factor = 4.0

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, *gradients):
            return Times.factor * gradients[0]

    scaled = lambda z, y: Times.apply(cross(z, y))  # noqa: E731
    b = run_torch(tmp_path / "c.trace", dtype, loss=scaled)
    assert only(a, b, "gradient-scale", "gradients").b.startswith(
        "scale: 4: summed over 4 micro-batches"
    )
    Times.factor = float(BATCH)
    b = run_torch(tmp_path / "d.trace", dtype, loss=scaled)
    cause = only(b, a, "gradient-scale", "gradients")
    assert cause.a == f"scale: {BATCH}: summed over the batch of {BATCH}, not averaged"


def test_a_leaf_without_gradient(tmp_path):
    a = run_torch(tmp_path / "a.trace")

    def frozen(model):
        model.fc.bias.requires_grad_(False)
        return adamw(model)

    assert only(
        a, run_torch(tmp_path / "b.trace", make=frozen), "missing-gradient", "gradients"
    ).where == ("fc.bias",)


def norm_clip(most: float, added: float):
    def clip(parameters):
        norm = torch.stack([(p.grad**2).sum() for p in parameters]).sum().sqrt()
        for p in parameters:
            p.grad *= min(1.0, most / (float(norm) + added))

    return clip


def torch_clip(most: float):
    return lambda parameters: nn.utils.clip_grad_norm_(parameters, most)


CLIPS = {
    "clip-norm": (torch_clip(0.01), torch_clip(0.02), 1.0),
    "clip-epsilon": (torch_clip(1e-4), norm_clip(1e-4, 0.0), 1e-2),
    "clip-kind": (torch_clip(0.01), None, 1.0),
    "clip-kind values": (torch_clip(0.01), lambda ps: nn.utils.clip_grad_value_(ps, 0.005), 1.0),
    "clip-kind leaves": (
        torch_clip(0.01),
        lambda ps: [nn.utils.clip_grad_norm_(p, 0.01) for p in ps],
        1.0,
    ),
}


@both
@pytest.mark.parametrize("fault", CLIPS)
def test_clipping(tmp_path, dtype, fault):
    first, second, times = CLIPS[fault]
    a = run_torch(tmp_path / "a.trace", dtype, clip=first, times=times)
    b = run_torch(tmp_path / "b.trace", dtype, clip=second, times=times)
    where = first_difference(a, b)
    if where is None:  # 1e-6 of a norm of 1e-3 is less than what float32 programs differ by otherwise
        where = 0, "clipped"
    causes = explain_step(step_segment(a, *where), step_segment(b, *where)).causes
    assert causes[0].name == fault.split()[0]
    assert where[1] == "clipped"


def test_the_constant_of_clipping_is_invisible_at_a_large_norm(tmp_path):
    a = run_torch(tmp_path / "a.trace", "float32", clip=torch_clip(1.0), times=2000.0)
    b = run_torch(tmp_path / "b.trace", "float32", clip=norm_clip(1.0, 0.0), times=2000.0)
    assert first_difference(a, b) is None
    assert explain_step(step_segment(a, 0, "clipped"), step_segment(b, 0, "clipped")) == PlaceVerdict()


@both
def test_clipping_within_optax_is_seen_in_the_moments(tmp_path, dtype, x64):
    a = run_torch(tmp_path / "a.trace", dtype, clip=norm_clip(0.1, 0.0))
    b = run_jax(tmp_path / "b.trace", dtype, of_optax(optax.clip_by_global_norm(0.2)))
    cause = only(a, b, "clip-norm", "clipped")
    assert (cause.a, cause.b) == ("max norm 0.1", "max norm 0.2")
    c = run_jax(tmp_path / "c.trace", dtype, of_optax())
    assert only(a, c, "moments-gradient", "moments").b == "gradient: not clipped"


def cosine(total: int, shift: int = 0, peak: float = RATE) -> list[float]:
    return [peak * 0.5 * (1 + np.cos(np.pi * (i + shift) / total)) for i in range(STEPS)]


def warmup(first: int) -> list[float]:
    return [RATE * (i + first) / 100 for i in range(STEPS)]


SCHEDULES = {
    "shift": (cosine(100), cosine(100, 1), "schedule-shift"),
    "warm-up from 0": (warmup(1), warmup(0), "schedule-shift"),
    "0.1 % more": (cosine(100), cosine(100, peak=1.001 * RATE), "learning-rate"),
    "over T - 1": (cosine(100), cosine(99), "schedule"),
    "constant": (cosine(100), [RATE] * STEPS, "schedule"),
    "ahead, seen at a peak": ([0.5 * RATE, *3 * [RATE]], [*3 * [RATE], 0.9 * RATE], "schedule-shift"),
}


@both
@pytest.mark.parametrize("fault", SCHEDULES)
def test_schedules(tmp_path, dtype, fault):
    first, second, name = SCHEDULES[fault]
    a = run_torch(tmp_path / "a.trace", dtype, rates=first)
    b = run_torch(tmp_path / "b.trace", dtype, rates=second)
    cause = only(a, b, name, "learning rate")
    if fault == "ahead, seen at a peak":
        assert (cause.a, cause.b) == ("shift: the step before", "shift: this step")
    if fault == "over T - 1":
        assert "over 100 steps" in cause.a
        assert "over 99 steps" in cause.b
    if fault == "0.1 % more":
        assert cause.b == "scale 1.001"


def test_a_rate_of_nobody_is_another_schedule(tmp_path):
    a = run_torch(tmp_path / "warm.trace", rates=[0.5 * RATE, RATE, RATE, RATE])
    b = run_torch(tmp_path / "constant.trace", rates=[RATE] * STEPS)  # of which a has fewer: no shift
    cause = only(a, b, "schedule", "learning rate")
    assert (cause.a, cause.b) == ("schedule: 0.005, 0.01, 0.01 ...", "schedule: 0.01, 0.01, 0.01 ...")
    a = run_torch(tmp_path / "a.trace", rates=cosine(100))
    b = run_torch(
        tmp_path / "b.trace", rates=list(RATE * np.random.default_rng(4).uniform(0.5, 1.5, STEPS))
    )
    assert only(a, b, "schedule", "learning rate").a.startswith("schedule: 0.01, ")


def test_groups_with_rates_of_their_own(tmp_path):
    rated = lambda by: lambda model: adamw_groups(model, by)  # noqa: E731
    a = run_torch(tmp_path / "a.trace", make=rated(0.5))
    b = run_torch(tmp_path / "b.trace", make=rated(0.25))
    cause = only(a, b, "learning-rate", "learning rate")
    assert cause.where == ("group 1",)
    assert {cause.a, cause.b} == {"scale 1", "scale 0.5"}


def adamw_groups(model, by):
    optimizer = adamw(model)
    optimizer.param_groups[1]["lr"] *= by
    return optimizer


def test_what_is_scrambled_is_unknown(tmp_path):
    """At every stage: values that no rule makes, from nearly right to not at all."""
    a = run_torch(tmp_path / "a.trace", clip=torch_clip(0.05))
    rng = np.random.default_rng(9)
    for stage in ("gradients", "clipped", "moments", "updated"):
        segment = step_segment(a, 1, stage)
        for size in (1e-6, 1e-3, 0.3):
            wrong = {
                name: value * (1 + size * rng.normal(size=value.shape))
                for name, value in segment.result.items()
            }
            verdict = explain_step(segment, changed(segment, wrong))
            assert not verdict.causes, verdict
            assert verdict.unknown is not None


def test_elements_that_are_only_rounding_decide_nothing(tmp_path):
    """Adam makes noise as large as any update: left in, it would be most of the difference."""
    a = step_segment(run_torch(tmp_path / "a.trace"), 0, "updated")
    b = step_segment(run_torch(tmp_path / "b.trace", make=lambda m: adamw(m, decay=0.051)), 0, "updated")
    noisy = {name: dict(getattr(b, name)) for name in ("gradients", "clipped", "moments", "result")}
    key = np.array([-2e-18])
    noisy["gradients"]["shift"] = noisy["clipped"]["shift"] = key
    noisy["moments"] |= {"shift exp_avg": 0.1 * key, "shift exp_avg_sq": 0.001 * key**2}
    noisy["result"]["shift"] = a.result["shift"] + 2 * RATE  # the other way, by a noise of another sign
    verdict = explain_step(a, replace(b, **noisy))
    assert [(c.name, c.b) for c in verdict.causes] == [("weight-decay", "weight decay 0.051")]
    assert verdict.causes[0].difference < RATE


def test_a_verdict_is_json(tmp_path):
    a = run_torch(tmp_path / "a.trace")
    b = run_torch(tmp_path / "b.trace", make=lambda m: adamw(m, betas=(0.9, 0.99)))
    said = verdict(a, b).to_dict()
    assert said["unknown"] is None
    assert said["causes"][0] | {"residual_a": 0, "residual_b": 0, "difference": 0} == {
        "name": "beta2",
        "stage": "moments",
        "where": [],
        "a": "beta2 0.999",
        "b": "beta2 0.99",
        "residual_a": 0,
        "residual_b": 0,
        "difference": 0,
        "advice": "AdamW(..., betas=(beta1, beta2)); optax.adamw(..., b2=beta2)",
    }
