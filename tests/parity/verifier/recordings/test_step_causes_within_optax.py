"""What optax does inside of its chain - clipping, a schedule in float32 - hides no other fault."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest

from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from tests.parity.verifier.recordings.test_step_causes import (
    MASK,
    RATE,
    STEPS,
    adamw,
    of_optax,
    only,
    run_jax,
    run_torch,
    verdict,
)
from tests.parity.verifier.recordings.test_step_causes_early import norm_clip, torch_clip

MOST = 0.1
"""A norm that every gradient of these programs is larger than."""
BETAS = (0.9, 0.95)


def reference(path, clip):
    return run_torch(path, "float64", lambda model: adamw(model, betas=BETAS), clip=clip)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "stage", "options"),
    [
        ("beta2", "moments", {"b2": 0.9989}),
        ("epsilon-place", "updated", {"b2": 0.95, "eps": 0.0, "eps_root": 1e-8}),
        ("weight-decay", "updated", {"b2": 0.95, "decay": 0.1}),
    ],
)
def test_clipping_of_both_hides_nothing(tmp_path, name, stage, options):
    a = reference(tmp_path / "a.trace", norm_clip(MOST, 0.0))
    tx = of_optax(optax.clip_by_global_norm(MOST), **options)
    only(a, run_jax(tmp_path / "b.trace", "float64", tx), name, stage)


@pytest.mark.usefixtures("x64")
def test_what_torch_adds_to_the_norm_is_named_in_the_moments(tmp_path):
    a = reference(tmp_path / "a.trace", torch_clip(MOST))
    b = run_jax(tmp_path / "b.trace", "float64", of_optax(optax.clip_by_global_norm(MOST), b2=0.95))
    cause = only(a, b, "clip-epsilon", "moments")
    assert (cause.a, cause.b) == ("added to the norm 1e-06", "added to the norm 0")


@pytest.mark.usefixtures("x64")
def test_each_value_clipped_within_optax(tmp_path):
    a = reference(tmp_path / "a.trace", norm_clip(MOST, 0.0))
    b = run_jax(tmp_path / "b.trace", "float64", of_optax(optax.clip(0.005), b2=0.95))
    cause = only(a, b, "clip-kind", "clipped")
    assert cause.b == "clipping: each value clipped to 0.005"


@pytest.mark.usefixtures("x64")
def test_decay_in_a_gradient_that_is_clipped_before(tmp_path):
    a = reference(tmp_path / "a.trace", norm_clip(MOST, 0.0))
    decayed = optax.add_decayed_weights(0.1)
    tx = of_optax(optax.clip_by_global_norm(MOST), decayed, b2=0.95)
    outcome = verdict(a, run_jax(tmp_path / "b.trace", "float64", tx))
    assert [(cause.name, cause.b) for cause in outcome.causes] == [
        ("coupled-decay", "decay in the gradient 0.1")
    ]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("decay", "ahead", "wrong"),
    [(0.05, 0, []), (0.1, 0, ["weight-decay"]), (0.05, 1, ["update-rate"])],
)
def test_a_schedule_in_float32_stands_behind_what_is_wrong(tmp_path, decay, ahead, wrong):
    def rate(count: jax.Array) -> jax.Array:
        return RATE * jnp.minimum(1.0, (count + 1 + ahead) / 7)

    rates = [RATE * min(1.0, (i + 1) / 7) for i in range(STEPS)]
    a = run_torch(tmp_path / "a.trace", "float64", rates=rates)
    tx = of_optax(rate=rate, decay=decay)
    b = run_jax(tmp_path / "b.trace", "float64", tx, rates=None)
    assert [cause.name for cause in verdict(a, b).causes] == [*wrong, "rate-rounded"]


@pytest.mark.usefixtures("x64")
def test_the_largest_moment_of_optax_is_that_of_corrected_ones(tmp_path):
    """And that of torch is not: one cause, in every step."""
    run_torch(tmp_path / "a.trace", "float64", lambda model: adamw(model, amsgrad=True))
    decay, rate = optax.add_decayed_weights(0.05, mask=MASK), optax.scale_by_learning_rate(RATE)
    run_jax(tmp_path / "b.trace", "float64", optax.chain(optax.scale_by_amsgrad(), decay, rate))
    diagnosis = diagnose(compare_sides(*(Recorded(tmp_path / f"{name}.trace") for name in "ab")))
    assert [(cause.name, cause.b) for cause in diagnosis.causes] == [
        ("amsgrad", "second moment: largest so far, of corrected ones")
    ]
    assert len(diagnosis.places) == 1
