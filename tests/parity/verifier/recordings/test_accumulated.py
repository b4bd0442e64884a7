"""Loops that accumulate gradients are compared by the steps of their optimisers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

from parity.measure.traces import record
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from tests.parity.verifier.recordings.test_step_causes import (
    MASK,
    RATE,
    Tiny,
    adamw,
    batches,
    draw,
    evaluate,
)

ROWS = 8


def run(path, micro, *, each=False, decay=0.05, forgotten=False):
    """Train in so many micro-batches a step.

    Args:
        each: whether every micro-batch is recorded as a step.
        forgotten: whether their losses are summed and not averaged.
    """
    model = Tiny("float64")
    optimizer = adamw(model, decay=decay)
    with record(path, model, optimizer=optimizer) as trace:

        def backward(x, y):
            loss = nn.functional.cross_entropy(model(x), y) / (1 if forgotten else micro)
            loss.backward()
            return loss.detach()

        for images, labels in batches("float64"):
            x, y = torch.tensor(images)[:ROWS], torch.tensor(labels)[:ROWS]
            parts = list(zip(x.chunk(micro), y.chunk(micro), strict=True))
            optimizer.zero_grad()
            if each:
                for number, (images, labels) in enumerate(parts):
                    with trace.step(images=images, labels=labels):
                        trace.log("loss", backward(images, labels))
                        if number == micro - 1:
                            optimizer.step()
            else:
                with trace.step(images=x, labels=y):
                    trace.log("loss", sum(backward(*part) for part in parts))
                    optimizer.step()
    return Recorded(path)


PAIRS = [
    ({"micro": 1}, {"micro": 2}),
    ({"micro": 2}, {"micro": 1}),
    ({"micro": 2}, {"micro": 4}),
    ({"micro": 1}, {"micro": 4, "each": True}),
    ({"micro": 2, "each": True}, {"micro": 1}),
    ({"micro": 4}, {"micro": 2, "each": True}),
    ({"micro": 2, "each": True}, {"micro": 2, "each": True}),
]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_micro_batches_that_add_up_are_equal(tmp_path, a, b):
    difference = compare_sides(run(tmp_path / "a", **a), run(tmp_path / "b", **b))
    assert (difference.verdict, difference.left_out, difference.b_alone) == ("EQUAL", (), ())
    compared = {each.stage for each in difference.comparisons if each.judged}
    assert {"forward", "gradients", "moments", "updated"} <= compared
    assert {each.step for each in difference.comparisons} == {0, 1, 2, 3}


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_another_decay_behind_micro_batches_is_named(tmp_path, a, b):
    diagnosis = diagnose(compare_sides(run(tmp_path / "a", **a), run(tmp_path / "b", **b, decay=0.1)))
    assert [cause.name for cause in diagnosis.causes] == ["weight-decay"]
    assert diagnosis.to_text().count("  cause: weight-decay\n") == 1


def test_micro_batches_that_are_summed(tmp_path):
    a = run(tmp_path / "a", 1)
    diagnosis = diagnose(compare_sides(a, run(tmp_path / "each", 4, each=True, forgotten=True)))
    assert [(cause.name, cause.b) for cause in diagnosis.causes] == [
        ("gradient-scale", "scale: 4: summed over 4 micro-batches or devices, not averaged")
    ]
    diagnosis = diagnose(compare_sides(a, run(tmp_path / "once", 4, forgotten=True)))
    assert [cause.name for cause in diagnosis.causes] == ["loss-reduction"]  # which was logged


class WithLoss(Tiny):
    """Returns its loss, as models of transformers do."""

    def forward(self, x, labels):
        logits = super().forward(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_what_nobody_logs_is_joined_too(tmp_path):
    """Batches and losses that a model is given and returns, as within a trainer that has a callback for
    steps alone."""
    for name, micro in (("a", 1), ("b", 2)):
        model = WithLoss("float64")
        optimizer = adamw(model)
        with record(tmp_path / name, model, optimizer=optimizer) as trace:
            for images, labels in batches("float64"):
                x, y = torch.tensor(images)[:ROWS], torch.tensor(labels)[:ROWS]
                with trace.step():
                    optimizer.zero_grad()
                    for part in zip(x.chunk(micro), y.chunk(micro), strict=True):
                        (model(part[0], labels=part[1])["loss"] / micro).backward()
                    optimizer.step()
    difference = compare_sides(*(Recorded(tmp_path / name) for name in "ab"))
    assert (difference.verdict, difference.left_out, difference.b_alone) == ("EQUAL", (), ())
    assert [len(each.judged) for each in difference.comparisons if each.stage == "batch"] == [2] * 4
    assert {"forward", "gradients"} <= {each.stage for each in difference.comparisons}


def test_what_is_joined_is_said(tmp_path):
    difference = compare_sides(run(tmp_path / "a", 1), run(tmp_path / "b", 4))
    assert difference.notes == (
        f"{tmp_path / 'b'}: its micro-batches are joined, and compared by steps of the optimiser",
    )


def run_multi_steps(path, micro, *, times=1.0, decay=0.05, held=jnp.float64):
    """Train by `optax.MultiSteps`, and record every micro-batch as a step.

    Args:
        held: type of the mean of the gradients; optax takes float32 if none is given.
    """
    params = {name: jnp.asarray(value) for name, value in draw("float64").items()}
    inner = optax.adamw(RATE, weight_decay=decay, mask=MASK)
    tx = optax.MultiSteps(inner, micro, accumulator_dtype=held)
    state = tx.init(params)
    with record(path) as trace:
        for images, labels in batches("float64"):
            for x, y in zip(*(np.split(each[:ROWS], micro) for each in (images, labels)), strict=True):
                with trace.step(images=x, labels=y):
                    trace.log("parameters", params)
                    (loss, logits), grads = evaluate(params, jnp.asarray(x), jnp.asarray(y), times)
                    trace.log("forward", logits, port="out")
                    trace.log("loss", loss)
                    trace.log("gradients", grads)
                    updates, state = tx.update(grads, state, params)
                    params = optax.apply_updates(params, updates)
                    trace.log("moments", optax.tree.get(state, "mu"), port="exp_avg")
                    trace.log("moments", optax.tree.get(state, "nu"), port="exp_avg_sq")
                    trace.log("learning rate", np.float64(RATE))
                    trace.log("updated", params)
    return Recorded(path)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("a", [{"micro": 1}, {"micro": 2, "each": True}, {"micro": 4}])
def test_every_micro_batch_of_multi_steps_is_a_step(tmp_path, a):
    difference = compare_sides(run(tmp_path / "a", **a), run_multi_steps(tmp_path / "b", 4))
    assert difference.verdict == "EQUAL", difference.notes
    compared = {each.stage for each in difference.comparisons if each.judged}
    assert {"forward", "gradients", "moments", "updated"} <= compared
    assert {each.step for each in difference.comparisons} == {0, 1, 2, 3}


@pytest.mark.usefixtures("x64")
def test_a_mean_in_float32_is_named_in_float64(tmp_path):
    b = run_multi_steps(tmp_path / "b", 4, held=jnp.float32)
    difference = compare_sides(run(tmp_path / "a", 1), b)
    assert difference.first is not None
    assert (difference.verdict, difference.first.stage) == ("DIFFERENT", "moments")
    assert 1e-9 < difference.first.judged.error < 1e-6
    diagnosis = diagnose(difference)
    assert [cause.name for cause in diagnosis.causes] == ["mean-rounded"]
    assert diagnosis.but_for == ("mean-rounded",)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("wrong", "name"), [({"times": 0.25}, "gradient-scale"), ({"decay": 0.1}, "weight-decay")]
)
def test_a_mistake_with_multi_steps_is_named(tmp_path, wrong, name):
    """The loss is divided, although the optimiser takes means; or the decay is another."""
    b = run_multi_steps(tmp_path / "b", 4, **wrong)
    diagnosis = diagnose(compare_sides(run(tmp_path / "a", 1), b))
    assert [cause.name for cause in diagnosis.causes] == [name]
