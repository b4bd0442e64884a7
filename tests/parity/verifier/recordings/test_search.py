"""What is explained is granted, and the search goes on: a fault behind it is named, and nothing else."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from parity.measure.traces import record
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from tests.parity.verifier.recordings.test_step_causes import (
    RATE,
    STEPS,
    adamw,
    groups,
    of_optax,
    run_jax,
    run_torch,
)
from tests.parity.verifier.recordings.test_step_causes_early import cosine, norm_clip, torch_clip

cross = torch.nn.functional.cross_entropy
MOST = 0.1
"""A norm that every gradient of these programs is larger than."""
CLIPPED = optax.clip_by_global_norm(MOST)

BEHIND = {
    "weight-decay": ({"decay": 0.1}, {"decay": 0.1}),
    "beta1": ({"betas": (0.8, 0.999)}, {"b1": 0.8}),
    "beta2": ({"betas": (0.9, 0.9989)}, {"b2": 0.9989}),
    "epsilon": ({"eps": 1e-6}, {"eps": 1e-6}),
    "decay-mask": ({"everywhere": True}, None),
    "amsgrad": ({"amsgrad": True}, None),
}
"""A fault, as an option of AdamW in torch and in optax."""


def named(folder, **options) -> list[str]:
    """The causes of the difference of a and b, the best of each place first."""
    return [cause.name for cause in of(folder, **options).causes]


def of(folder, **options):
    sides = (Recorded(folder / f"{name}.trace") for name in "ab")
    return diagnose(compare_sides(*sides), **options)


@pytest.mark.parametrize("fault", [*BEHIND, None])
def test_what_torch_adds_to_the_norm_hides_no_fault(tmp_path, fault):
    options = BEHIND[fault][0] if fault else {}
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST))
    make = lambda model: adamw(model, **options)  # noqa: E731
    run_torch(tmp_path / "b.trace", make=make, clip=norm_clip(MOST, 0.0))
    assert named(tmp_path) == ["clip-epsilon", *([fault] if fault else [])]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("wrong", ["torch", "optax"])
@pytest.mark.parametrize("fault", [name for name, (_, of_optax) in BEHIND.items() if of_optax])
def test_clipping_within_optax_hides_no_fault_of_either(tmp_path, fault, wrong):
    in_torch, in_optax = BEHIND[fault]
    make = lambda model: adamw(model, **(in_torch if wrong == "torch" else {}))  # noqa: E731
    run_torch(tmp_path / "a.trace", make=make, clip=torch_clip(MOST))
    tx = of_optax(CLIPPED, **(in_optax if wrong == "optax" else {}))
    run_jax(tmp_path / "b.trace", "float64", tx)
    assert sorted(named(tmp_path)) == sorted(["clip-epsilon", fault])


@pytest.mark.usefixtures("x64")
def test_clipping_within_optax_is_all_that_is_named(tmp_path):
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST))
    run_jax(tmp_path / "b.trace", "float64", of_optax(CLIPPED))
    diagnosis = of(tmp_path)
    assert [cause.name for cause in diagnosis.causes] == ["clip-epsilon"]
    assert (diagnosis.verdict, diagnosis.but_for, diagnosis.equal) == (
        "DIFFERENT",
        ("clip-epsilon",),
        False,
    )
    accepted = of(tmp_path, accept=["clip-epsilon"])
    assert (accepted.verdict, accepted.but_for, accepted.equal) == ("EQUAL", ("clip-epsilon",), True)


def test_a_real_fault_is_no_convention_unless_it_is_accepted(tmp_path):
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST))
    make = lambda model: adamw(model, decay=0.1)  # noqa: E731
    run_torch(tmp_path / "b.trace", make=make, clip=norm_clip(MOST, 0.0))
    for accept in ([], ["clip-epsilon"], ["weight-decay"]):
        diagnosis = of(tmp_path, accept=accept)
        # that of torch needs no consent to be called a convention
        whole = ("clip-epsilon", "weight-decay") if "weight-decay" in accept else ()
        assert (diagnosis.verdict, diagnosis.but_for) == ("DIFFERENT", whole)
    assert of(tmp_path, accept=["clip-epsilon", "weight-decay"]).equal


def test_a_schedule_off_by_one_and_what_torch_adds_to_the_norm(tmp_path):
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST), rates=cosine(100))
    run_torch(tmp_path / "b.trace", clip=norm_clip(MOST, 0.0), rates=cosine(100, 1))
    assert named(tmp_path) == ["clip-epsilon", "schedule-shift"]


@pytest.mark.usefixtures("x64")
def test_a_schedule_off_by_one_that_nobody_recorded(tmp_path):
    """It shows at the second update alone, where the two have parted already."""
    series = [RATE, *cosine(10)]
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST), rates=series[:STEPS])
    late = lambda count: jnp.asarray(series)[jnp.maximum(count - 1, 0)]  # noqa: E731
    tx = of_optax(CLIPPED, rate=late)
    run_jax(tmp_path / "b.trace", "float64", tx, rates=None)
    assert named(tmp_path) == ["clip-epsilon", "update-rate"]


def test_gradients_that_are_not_cleared_behind_another_fault(tmp_path):
    """They differ from the second step on, by more than the first step's difference lets them."""
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST))
    run_torch(tmp_path / "b.trace", clip=norm_clip(MOST, 0.0), zero=False)
    assert named(tmp_path) == ["clip-epsilon", "gradients-kept"]


def test_two_real_faults_are_both_named(tmp_path):
    run_torch(tmp_path / "a.trace")
    run_torch(tmp_path / "b.trace", make=lambda m: adamw(m, decay=0.1, betas=(0.9, 0.99)))
    assert named(tmp_path) == ["beta2", "weight-decay"]


def test_a_loss_of_another_kind_and_a_wrong_optimiser(tmp_path):
    """Nothing tells what the gradients of the other loss should be, so they are not equal but for it."""
    smoothed = lambda z, y: torch.nn.functional.cross_entropy(z, y, label_smoothing=0.1)  # noqa: E731
    run_torch(tmp_path / "a.trace")
    run_torch(tmp_path / "b.trace", loss=smoothed, make=lambda m: adamw(m, decay=0.1))
    names = ["label-smoothing", "weight-decay"]
    assert named(tmp_path) == names
    assert of(tmp_path, accept=names).verdict == "DIFFERENT"


def test_nothing_is_searched_behind_what_has_no_cause(tmp_path):
    scrambled = lambda ps: [p.grad.mul_(1 + 1e-3 * torch.rand_like(p)) for p in ps]  # noqa: E731
    run_torch(tmp_path / "a.trace", clip=torch_clip(MOST))
    run_torch(tmp_path / "b.trace", clip=scrambled, make=lambda m: adamw(m, decay=0.1))
    diagnosis = of(tmp_path, accept=["clip-epsilon"])
    assert ([len(diagnosis.places), diagnosis.causes], diagnosis.unknown is None) == ([1, ()], False)


def test_a_recorded_schedule_in_float32_is_a_convention(tmp_path):
    rates = [float(np.float32(rate)) for rate in cosine(100)]
    run_torch(tmp_path / "a.trace", rates=cosine(100))
    run_torch(tmp_path / "b.trace", rates=rates)
    assert of(tmp_path).but_for == ("rate-rounded",)
    (tmp_path / "b.trace").rename(tmp_path / "right.trace")
    run_torch(tmp_path / "b.trace", rates=rates, make=lambda m: adamw(m, decay=0.1))
    assert named(tmp_path) == ["rate-rounded", "weight-decay"]


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_decay_that_moves_less_than_rounding_is_granted(tmp_path, everywhere):
    """A hundred units in the last place of a parameter: no other stage differs by more."""
    slow = {"rates": [2e-4] * STEPS}
    run_torch(tmp_path / "a.trace", "float32", **slow)
    run_torch(tmp_path / "b.trace", "float32", lambda m: adamw(m, everywhere=everywhere), **slow)
    diagnosis = of(tmp_path)
    assert [cause.name for cause in diagnosis.causes] == (["decay-mask"] if everywhere else [])
    assert diagnosis.verdict == ("DIFFERENT" if everywhere else "EQUAL")
    run_jax(tmp_path / "c.trace", "float32", of_optax(rate=2e-4), rates=None)
    sides = (Recorded(tmp_path / f"{name}.trace") for name in ("c", "b"))
    assert diagnose(compare_sides(*sides)).equal is not everywhere


coupled = lambda model: torch.optim.Adam(groups(model, 0.05), lr=RATE)  # noqa: E731
late = [0.0, *cosine(10)][:STEPS]
ALONE = {
    "clip-norm": ({"clip": norm_clip(MOST, 0.0)}, {"clip": norm_clip(MOST / 2, 0.0)}),
    "clip-kind": ({"clip": norm_clip(MOST, 0.0)}, {}),
    "coupled-decay": ({}, {"make": coupled}),
    "first-moment-sum": ({}, {"make": lambda model: Summed(groups(model, 0.05), lr=RATE)}),
    "schedule-shift": ({"rates": cosine(10)}, {"rates": late}),
    "gradients-kept": ({}, {"zero": False}),
    "gradient-scale": ({}, {"clip": None, "loss": lambda z, y: Scaled.apply(cross(z, y))}),
    "loss-reduction": ({}, {"loss": lambda z, y: cross(z, y, reduction="sum")}),
}
"""Faults of one program that could be taken for two: a later stage shows them as well."""


class Summed(torch.optim.AdamW):
    """Adds the gradient to its first moment as it is."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if not (s := self.state[p]):
                    s |= {"step": torch.tensor(0.0)}
                    s |= {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                s["step"] += 1
                s["exp_avg"].mul_(0.9).add_(p.grad)
                s["exp_avg_sq"].mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
                t = float(s["step"])
                root = (s["exp_avg_sq"] / (1 - 0.999**t)).sqrt() + 1e-8
                p -= RATE * (s["exp_avg"] / (1 - 0.9**t) / root + group["weight_decay"] * p)


class Scaled(torch.autograd.Function):
    """The gradient of four times as much."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        return 4 * gradients[0]


@pytest.mark.parametrize("fault", ALONE)
@pytest.mark.parametrize("reverse", [False, True])
def test_one_fault_is_one_cause(tmp_path, fault, reverse):
    for name, options in zip("ba" if reverse else "ab", ALONE[fault], strict=True):
        run_torch(tmp_path / f"{name}.trace", **options)
    assert named(tmp_path) == [fault]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_decay_that_is_moved_into_the_gradient_and_changed_is_two_causes(tmp_path, reverse):
    makes = [lambda m: adamw(m, decay=0.1), coupled]
    for name, make in zip("ba" if reverse else "ab", makes, strict=True):
        run_torch(tmp_path / f"{name}.trace", make=make)
    assert named(tmp_path) == ["coupled-decay", "weight-decay"]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("fault", ["weight-decay", "beta2", None])
def test_in_float32_the_constant_of_clipping_is_rounding(tmp_path, fault):
    """Alone it is granted; beside a fault that shows, it may be named, as it is there."""
    run_torch(tmp_path / "a.trace", "float32", clip=torch_clip(MOST))
    tx = of_optax(CLIPPED, **(BEHIND[fault][1] if fault else {}))
    run_jax(tmp_path / "b.trace", "float32", tx)
    assert [name for name in named(tmp_path) if not (fault and name == "clip-epsilon")] == [
        fault
    ] * bool(fault)


AVERAGES = {
    "the same": (0.9, 0.9, ["clip-epsilon"]),
    "another decay": (0.9, 0.8, ["clip-epsilon", "ema-decay"]),
    "of no rule": (0.9, None, ["clip-epsilon"]),
}


@pytest.mark.parametrize("fault", AVERAGES)
def test_a_moving_average_behind_what_clipping_did(tmp_path, fault):
    *decays, names = AVERAGES[fault]
    clips = torch_clip(MOST), norm_clip(MOST, 0.0)
    for name, clip, decay in zip("ab", clips, decays, strict=True):
        trace = run_torch(tmp_path / f"{name}.plain", clip=clip)
        averages = {each.path: trace.read(each) for each in trace.of("parameters", 0)}
        with record(tmp_path / f"{name}.trace") as again:
            for step in trace.steps:
                with again.step(**{e.path: trace.read(e) for e in trace.of("batch", step)}):
                    for each in trace.events:
                        if each.step == step and each.stage != "batch":
                            again.log(each.stage, trace.read(each), path=each.path, port=each.port)
                    for each in trace.of("updated", step):
                        share = 0.9 + 0.05 * np.sin(averages[each.path]) if decay is None else decay
                        new = share * averages[each.path] + (1 - share) * trace.read(each)
                        averages[each.path] = new
                        again.log("updated", new, path=each.path, port="ema")
    diagnosis = of(tmp_path)
    assert [cause.name for cause in diagnosis.causes] == names
    assert diagnosis.but_for == (("clip-epsilon",) if fault == "the same" else ())
    assert [place.verdict.unknown is None for place in diagnosis.places][-1] == (fault != "of no rule")
