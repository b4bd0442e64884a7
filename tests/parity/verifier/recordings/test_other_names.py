"""Parameters of other names, packed or laid out otherwise: found by their numbers, and compared."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from parity.measure.traces import Trace, record
from parity.verifier.recordings import Recorded, compare_sides
from parity.verifier.recordings.diagnosis import diagnose
from parity.verifier.recordings.report import print_diagnosis
from tests.parity.verifier.recordings.test_step_causes import adamw, run_torch
from tests.parity.verifier.recordings.test_step_causes_early import norm_clip, torch_clip
from vit_config.screen import screen

NAMED = ("parameters", "gradients", "clipped", "moments", "updated")


def renamed(leaves):
    """Every parameter has another name, and the matrices lie the other way."""
    return {f"their_{name.replace('.', '_')}": value.T for name, value in leaves.items()}


def packed(leaves):
    """All that the layers have is one parameter each."""
    row = lambda of: np.concatenate([leaves[each].T.ravel() for each in of if each in leaves])  # noqa: E731
    tensors = {"body": row(["fc.bias", "fc.weight", "norm.weight"])[None]}
    return tensors | {"top": row(["shift", "head.weight", "head.bias"])}


def in_part(leaves):
    return {{"fc.bias": "b1", "head.bias": "b2"}.get(k, k): v for k, v in leaves.items()}


def written_again(trace: Trace, path, change):
    """The same recording with other parameters' names."""
    with record(path) as again:
        for step in trace.steps:
            batch = {each.path: trace.read(each) for each in trace.of("batch", step)}
            with again.step(**batch):
                for stage in ("forward", "loss", "learning rate"):
                    for each in trace.of(stage, step):
                        again.log(stage, trace.read(each), path=each.path, port=each.port)
                for stage in NAMED:
                    events = [e for e in trace.of(stage, step) if e.path and e.port != "step"]
                    for port in dict.fromkeys(each.port for each in events):
                        leaves = {e.path: trace.read(e) for e in events if e.port == port}
                        again.log(stage, change(leaves), port=port)
    return path


def of(folder, change, reverse=False, **options):
    """The diagnosis of a, and of b under other names."""
    other = written_again(Trace(folder / "b.trace"), folder / "other.trace", change)
    sides = [Recorded(folder / "a.trace"), Recorded(other)]
    return diagnose(compare_sides(*(reversed(sides) if reverse else sides)), **options)


CHANGES = [renamed, packed, in_part]
changes = pytest.mark.parametrize("change", CHANGES)
both = pytest.mark.parametrize("reverse", [False, True])


@both
@changes
@pytest.mark.parametrize("zeros", [False, True])
def test_the_same_under_other_names_is_equal(tmp_path, change, reverse, zeros):
    def make(model):
        if zeros:  # equal numbers are told apart by their gradients
            for each in (model.fc.bias, model.head.bias, model.shift):
                nn.init.zeros_(each)
        return adamw(model)

    for name in "ab":
        run_torch(tmp_path / f"{name}.trace", make=make)
    diagnosis = of(tmp_path, change, reverse)
    assert (diagnosis.verdict, diagnosis.difference.left_out, diagnosis.difference.b_alone) == (
        "EQUAL",
        (),
        (),
    )


FAULTS = {
    "weight-decay": {"decay": 0.1},
    "beta2": {"betas": (0.9, 0.9989)},
    "decay-mask": {"everywhere": True},
}


@both
@changes
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_under_other_names_is_named(tmp_path, fault, change, reverse):
    run_torch(tmp_path / "a.trace", clip=torch_clip(0.1))
    make = lambda model: adamw(model, **FAULTS[fault])  # noqa: E731
    run_torch(tmp_path / "b.trace", make=make, clip=norm_clip(0.1, 0.0))
    assert [c.name for c in of(tmp_path, change, reverse).causes] == ["clip-epsilon", fault]


def without_fc_bias(model):
    model.fc.bias.requires_grad_(False)
    return adamw(model)


@both
def test_a_missing_gradient_under_another_name_is_a_difference(tmp_path, reverse):
    run_torch(tmp_path / "a.trace")
    run_torch(tmp_path / "b.trace", make=without_fc_bias)
    diagnosis = of(tmp_path, in_part, reverse)
    assert [cause.name for cause in diagnosis.causes] == ["missing-gradient"]
    assert (diagnosis.verdict, diagnosis.difference.left_out, len(diagnosis.places)) == (
        "DIFFERENT",
        (),
        1,
    )
    assert ("missing in A" if reverse else "missing in B") in diagnosis.places[0].divergences[0].what


def test_a_gradient_of_zero_may_be_missing(tmp_path):
    """JAX gives zeros where torch gives none."""
    for name in "ab":
        run_torch(tmp_path / f"{name}.trace", make=without_fc_bias)

    def with_zeros(leaves):
        return in_part({"fc.bias": np.zeros(7)} | leaves)

    diagnosis = of(tmp_path, with_zeros)
    assert (diagnosis.verdict, diagnosis.causes) == ("EQUAL", ())


def test_a_parameter_of_other_numbers_is_found_beside_those_of_its_module(tmp_path):
    for name in "ab":
        run_torch(tmp_path / f"{name}.trace")

    def moved(leaves):
        return {
            name.replace("fc.", "dense."): value + (name == "fc.bias") for name, value in leaves.items()
        }

    first = of(tmp_path, moved).difference.first
    assert (first.stage, first.where, first.where_b) == ("parameters", "fc.bias", "dense.bias")


def test_what_is_not_found_by_its_numbers_is_said(tmp_path, capsys):
    run_torch(tmp_path / "a.trace")
    run_torch(tmp_path / "b.trace", make=lambda model: adamw(model, decay=0.1))
    other = lambda leaves: {{"shift": "moved"}.get(k, k): v + (k == "shift") for k, v in leaves.items()}  # noqa: E731
    diagnosis = of(tmp_path, other)
    print_diagnosis(diagnosis, screen(110))
    said = " ".join(capsys.readouterr().out.split())
    assert diagnosis.verdict == "DIFFERENT"
    assert (
        "not compared: parameters: A's shift; B's moved; nothing of the other side holds their" in said
    )
