"""Deliberate faults of training: each changes its own twin, as the same fault changes the other."""

import re

import numpy as np
import pytest
import torch

from evidence.faults import STEP_FAULTS
from parity.faults.steps import inject_step
from parity.measure.site import STAGES
from tests.support.fault_steps import RECIPE, train_jax, train_torch
from tests.support.fault_subjects import BASE
from vit_config import ConfigError

HIDDEN = {
    "loss_sum",
    "summed_accumulation",
}  # a gradient of another scale: clipping to a norm takes it back
QUICK = {"beta2", "epsilon_in_the_root", "clip_each_leaf"}
# some of them: evidence/mutation_score has each found in either trainer
SOME = [
    *sorted(QUICK),
    *(pytest.param(name, marks=pytest.mark.slow) for name in [*STEP_FAULTS][::10]),
    *(
        pytest.param(name, marks=pytest.mark.exhaustive)
        for name in [*STEP_FAULTS][5::10]
        if name not in QUICK
    ),
]


def test_there_is_a_fault_for_every_stage():
    assert len(STEP_FAULTS) >= 15
    stages = {fault.stage for fault in STEP_FAULTS.values()}
    assert (
        stages == {"loss", "gradients", "clipped", "learning rate", "moments", "updated"} <= set(STAGES)
    )
    assert sum(fault.cause is None for fault in STEP_FAULTS.values()) >= 3
    for fault in STEP_FAULTS.values():
        assert fault.cause is None or re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.cause), fault.name


@pytest.fixture(scope="module")
def clean():
    return {"torch": train_torch(RECIPE), "jax": train_jax(RECIPE)}


@pytest.mark.parametrize("name", SOME)
def test_a_fault_is_the_same_in_either_trainer_and_in_no_other(name, clean):
    fault = STEP_FAULTS[name]
    optimizers = torch.optim.AdamW, torch.optim.Adam
    wrong = {}
    for each in fault.twins:
        with inject_step(f"{name}@{each}", RECIPE) as recipes:
            results = {"torch": train_torch(recipes["torch"]), "jax": train_jax(recipes["jax"])}
        other = "jax" if each == "torch" else "torch"
        assert _difference(results[other], clean[other]) == 0.0
        assert (_difference(results[each], clean[each]) > 1e-11) is (name not in HIDDEN)
        wrong[each] = results[each]
    if len(wrong) == 2:
        assert _difference(wrong["torch"], wrong["jax"]) < 1e-12
    assert (torch.optim.AdamW, torch.optim.Adam) == optimizers
    assert _difference(train_torch(RECIPE), clean["torch"]) == 0.0


def _difference(a, b):
    """The largest; of the key bias, whose gradient is nothing but noise, nothing."""
    D = BASE.hidden_size

    def without_noise(name, x):
        return np.delete(x, np.s_[D : 2 * D]) if name.endswith("qkv.bias") else x

    return max(
        float(np.abs(without_noise(name, a[name]) - without_noise(name, b[name])).max()) for name in a
    )


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        ("beta3", {}, "did you mean 'beta"),
        ("cosmic_rays", {}, "they are loss_sum"),
        ("beta1@flax", {}, "can be in jax and torch only"),
        ("gradients_not_zeroed@jax", {}, "can be in torch only"),
        ("clip_epsilon", {"clip_norm": None}, "nothing to break where clip_norm = None"),
        ("missing_decay", {"weight_decay": 0.0}, "nothing to break where weight_decay = 0.0"),
    ],
)
def test_what_cannot_be_injected(text, changes, said):
    with pytest.raises(ConfigError, match=re.escape(said)), inject_step(text, RECIPE.replace(**changes)):
        pass
