"""What a slip in the formulas of errors, weights and rates would change, each by its own number."""

import math
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from parity.measure.error import joint_error, relative_error
from parity.measure.judged import Judged, LevelResult
from parity.measure.nearness import nearness
from parity.measure.redraw import branch_norms, redraw
from parity.measure.site import Site
from parity.measure.tolerance import FACTOR, LIMITS, STEP_LEVELS, STEP_LIMITS
from parity.porting.formats.stack import key_of
from vit_config import Recipe, ViTConfig
from vit_config.schedule import average_decay, learning_rate, step_seed

pytestmark = pytest.mark.quick


def test_the_joint_error_is_relative_to_the_reference():
    pairs = [(np.array([6.0, 0.0]), np.array([3.0, 0.0])), (np.array([4.0]), np.array([4.0]))]
    assert joint_error(pairs) == pytest.approx(3 / 5)
    assert joint_error([(np.ones(2), np.ones(2)), (np.zeros(1), np.zeros(1))]) == 0.0
    assert joint_error([(np.array([math.nan]), np.array([1.0]))]) == math.inf


def test_the_least_size_is_not_added():
    assert relative_error(np.array([6.0]), np.array([3.0]), at_least=2.0) == 1.0
    assert relative_error(np.array([6.0]), np.array([3.0]), at_least=6.0) == 0.5


def test_a_hole_is_one_only_where_both_have_it():
    hole = np.array([math.nan, 2.0])
    assert relative_error(hole, hole, holes=True) == 0.0
    assert relative_error(hole, np.array([1.0, 2.0]), holes=True) == math.inf
    assert relative_error(np.array([1.0, 2.0]), hole, holes=True) == math.inf


def test_weights_are_drawn_wide_enough_to_show_a_fault():
    narrow = redraw("a.weight", "linear", (300, 50), 0)
    assert (narrow.std(), narrow.mean()) == (pytest.approx(0.2, rel=0.05), pytest.approx(0.0, abs=0.02))
    wide = redraw("a.weight", "linear", (50, 1024), 0)
    assert wide.std() == pytest.approx(0.2 * math.sqrt(64 / 1024), rel=0.05)
    assert redraw("a.norm.weight", "norm", (4000,), 0).mean() == pytest.approx(1.0, abs=0.02)


def test_two_norms_of_a_block_end_branches():
    cfg = ViTConfig(depth=3)
    assert branch_norms(cfg) == 0
    assert branch_norms(cfg.replace(block="res_post")) == 6
    plain = redraw("blocks.0.norm1.weight", "norm", (5,), 0)
    np.testing.assert_allclose(
        redraw("blocks.0.norm1.weight", "norm", (5,), 0, branch_norms=6), plain / math.sqrt(6)
    )


def test_warm_up_and_steps_are_rounded_to_whole_steps():
    warm = Recipe(epochs=10, learning_rate=1.0, warmup_epochs=0.4)
    assert learning_rate(warm, 0, 7) == pytest.approx(1 / 3)  # 2.8 steps are 3
    steps = Recipe(
        epochs=10,
        learning_rate=1.0,
        warmup_epochs=0.0,
        schedule="step",
        step_epochs=0.4,
        step_factor=0.5,
    )
    assert [float(learning_rate(steps, step, 7)) for step in (0, 2, 3)] == [1.0, 1.0, 0.5]


def test_an_average_warms_up_by_the_number_of_updates():
    warm = Recipe(ema=0.9, ema_warmup=True)
    assert [float(average_decay(warm, k)) for k in (1, 8, 10**6)] == pytest.approx([0.0, 0.75, 0.9])


def test_seeds_of_two_runs_do_not_overlap():
    seeds = {step_seed(Recipe(seed=seed), step) for seed in range(6) for step in range(6)}
    assert len(seeds) == 36


def test_long_keys_of_a_pickle_are_refused():
    assert key_of("x" * 4096)
    assert key_of(1.5) == 1.5
    with pytest.raises(TypeError, match="of type list"):
        key_of([])
    with pytest.raises(ValueError, match="4097"):
        key_of("x" * 4097)


def test_what_a_nudge_does_is_allowed_within_bounds():
    grain = FACTOR * 2.0**-52
    assert nearness(0.0, 0.0, 0.0) == (grain, 1e-12, grain)
    assert nearness(1.0, 1.0, 1.0) == pytest.approx((1e-11, 1e-9, 1e-9))
    moved = nearness(1e-13, 1e-12, 1e-12)
    assert moved == pytest.approx((FACTOR * 1e-13, FACTOR * 1e-12, FACTOR * 1e-12))
    assert moved.or_more(nearness(0.0, 1.0, 0.0)) == (moved.means, 1e-9, moved.norm)


def test_zero_is_within_a_limit_of_zero_and_nothing_else_is():
    site = Site(0, "forward", "a")
    fine, same, apart = (
        Judged(site, (0.5, 2.0), 4.0, ""),
        Judged(site, (0.0,), 0.0, ""),
        Judged(site, (1e-300,), 0.0, ""),
    )
    assert (fine.score, same.score, apart.score) == (0.5, 0.0, math.inf)
    assert (fine.passed, same.passed, apart.passed) == (True, True, False)


def test_limits_are_powers_of_two_and_twice_what_the_page_measured():
    page = (Path(__file__).parents[3] / "docs" / "parity.md").read_text(encoding="utf-8")
    for dtype, limits in LIMITS.items():
        measured = [re.findall(r"\((\d+)\)", row) for row in page.splitlines() if f" {dtype} " in row]
        rows = [[*map(int, row)] for row in measured if len(row) == len(limits)]
        assert len(rows) == 5
        for limit, *distances in zip(limits.values(), *rows, strict=True):
            assert math.log2(limit).is_integer()
            assert limit > 2 * (max(distances) + 0.5)
        assert STEP_LIMITS[dtype] == {
            level: limits["loss" if level == "loss" else "gradients"] for level in STEP_LEVELS
        }


def test_a_judgement_stays_as_it_was_made():
    judged = Judged(Site(0, "forward", "a"), (0.0,), 0.0, "")
    for each, field in ((judged, "limit"), (LevelResult.of("float32", "output", [judged]), "dtype")):
        with pytest.raises(FrozenInstanceError):
            setattr(each, field, 1.0)
