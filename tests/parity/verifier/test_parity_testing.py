"""`assert_parity` and its lock file, as other people's tests use them."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from parity.testing import ROOM, assert_parity, check_lock, worst_errors
from vit_config import ConfigError, InputError

LEVELS = ("logits", "gradients")
X = np.random.default_rng(0).standard_normal((3, 7))
WORST = {"logits": 3e-16, "forward": 2e-12}


class Net(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, act=None, twist=None):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.act, self.fc2 = nn.Linear(7, 11), act or nn.GELU(), nn.Linear(11, 5)
        self.twist = twist or (lambda x: x)

    def forward(self, x):
        return self.fc2(self.act(self.twist(self.fc1(x))))


def stopped(x):
    """The same values, and no gradient of half of them."""
    return torch.cat([x[..., :5], x[..., 5:].detach()], dim=-1)


def pair(**changes):
    return (Net().eval(), X), (Net(**changes).eval(), X)


@pytest.mark.parametrize("level", LEVELS)
def test_equal_models_pass_at_every_level(level):
    difference = assert_parity(*pair(), level=level)
    assert difference.equal
    assert list(worst_errors(difference)) == [*LEVELS[: LEVELS.index(level) + 1]]


@pytest.mark.parametrize("level", LEVELS)
def test_another_activation_fails_at_every_level_with_its_place(level):
    with pytest.raises(
        AssertionError,
        match=r"(?s)^DIFFERENT: 1 of 1 out.*1. activation: gelu, tanh where A.*self.fc2\(self.act",
    ):
        assert_parity(*pair(act=nn.GELU("tanh")), level=level)


def test_a_gradient_that_is_cut_off_is_a_difference_of_gradients_alone():
    sides = pair(twist=stopped)
    assert_parity(*sides, level="logits")
    with pytest.raises(AssertionError, match="the outputs are the same; their gradients are not:"):
        assert_parity(*sides, level="gradients")


def test_models_are_left_alone():
    model = Net().train()
    before = [parameter.clone() for parameter in model.parameters()]
    assert_parity((model, X), (Net(), X), level="gradients")
    assert model.training
    assert next(model.parameters()).dtype is torch.float32
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_of_nnx_is_left_alone():
    from flax import nnx

    class Small(nnx.Module):
        def __init__(self):
            self.fc, self.drop = nnx.Linear(7, 5, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1))

        def __call__(self, x):
            return self.drop(self.fc(x))

    model = Small()
    difference = assert_parity((model, X), (model, X))
    assert not model.drop.deterministic
    assert difference.remarks == tuple(
        f"{name}: was given in training mode; it is compared in evaluation mode; as it was given, these"
        " are on: drop (Dropout, 0.5)"
        for name in "AB"
    )


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({"level": "weights"}, ConfigError, "level = 'weights': must be one of logits, gradients"),
        ({"b": (5, X)}, InputError, "int cannot be called"),
        ({"b": (nn.Linear(5, 3), X)}, RuntimeError, "shapes cannot be multiplied"),
    ],
)
def test_mistakes(options, error, line):
    arguments = dict(zip("ab", pair(), strict=True)) | options
    with pytest.raises(error, match=line):
        assert_parity(**arguments)


def test_the_lock_is_written_and_kept(tmp_path):
    lock = tmp_path / "errors.json"
    difference = assert_parity(*pair(), level="gradients", lock=lock)
    written = lock.read_text()
    assert json.loads(written) == worst_errors(difference)
    assert_parity(*pair(), level="gradients", lock=lock)
    assert lock.read_text() == written
    with pytest.raises(ConfigError, match="is a folder; give the path of a file"):
        assert_parity(*pair(), lock=tmp_path)


def test_an_error_that_passes_and_has_grown_breaks_the_lock(tmp_path):
    lock = tmp_path / "errors.json"
    bent = pair(twist=lambda x: x * (1 + 3e-15))
    assert_parity(*pair(), lock=lock)
    with pytest.raises(AssertionError, match=r"logits .*, was 0\.0e"):
        assert_parity(*bent, lock=lock)
    assert json.loads(lock.read_text())["logits"] == 0.0
    assert_parity(*bent)  # without the lock it is rounding


@pytest.mark.parametrize(
    ("worst", "broken"),
    [
        ({"forward": ROOM * 2e-12}, False),
        ({"forward": 1.01 * ROOM * 2e-12}, True),
        ({"logits": 8e-16}, False),  # of the order of one epsilon
        ({"forward": float("nan")}, True),
    ],
)
def test_how_much_an_error_may_grow(worst, broken, tmp_path):
    lock = tmp_path / "errors.json"
    check_lock(lock, WORST)
    if broken:
        with pytest.raises(AssertionError, match="errors have grown more than 4 times: forward"):
            check_lock(lock, worst)
    else:
        check_lock(lock, worst)
    assert json.loads(lock.read_text()) == WORST


def test_the_lock_takes_new_levels_and_on_demand_worse_errors(tmp_path, monkeypatch):
    lock = tmp_path / "errors.json"
    check_lock(lock, WORST)
    check_lock(lock, {"gradients": 1e-13})
    assert json.loads(lock.read_text()) == WORST | {"gradients": 1e-13}
    monkeypatch.setenv("PARITY_LOCK_UPDATE", "1")
    check_lock(lock, {"forward": 1.0})
    assert json.loads(lock.read_text())["forward"] == 1.0
    assert json.loads(lock.read_text())["logits"] == WORST["logits"]


@pytest.mark.parametrize("content", ["", "[1]", '{"logits": "small"}', '{"logits": null}', "\xff\xfe"])
def test_a_damaged_lock(content, tmp_path):
    lock = tmp_path / "errors.json"
    lock.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match="expected a JSON object of errors by level; delete it"):
        check_lock(lock, WORST)
