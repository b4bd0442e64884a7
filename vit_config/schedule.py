"""The learning rate of every step, by the same formulas for both trainers.

With the peak p, the final rate f, warm-up of W steps, T steps in all, and c the steps since the
warm-up's end - or since the run's beginning, where the warm-up hides the schedule's - over their number
L, T - W or T:

    cosine   f + (p - f) (1 + cos(pi c / L)) / 2      arXiv 1608.03983 without restarts
    linear   f + (p - f) (1 - c / L)
    step     p factor^floor(c / S)                    S steps apart
    rsqrt    p / sqrt(1 + c / S)                      as Big Vision
    constant p

Cosine and linear would reach f at step T, one past the last, as torch, optax, timm and Hugging Face have
it; with `reach_final`, L is one less and the last step runs at f. In warm-up, step t runs at p (t + 1) /
W, or from a start s at s + (p - s) t / W. W and the S of a step schedule are rounded to whole steps.
Where the unit is the epoch, all of this counts epochs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vit_config.recipe import Recipe


def learning_rate(recipe: Recipe, step: Any, steps_per_epoch: int, xp: Any = np) -> Any:
    """Compute the learning rate of update number `step`, counted from 0.

    Args:
        step: an integer, or an array of the namespace `xp` (a traced one under `jax.jit`).
        xp: numpy or jax.numpy; the result has its widest float type.
    """
    by_epoch = recipe.schedule_unit == "epoch"
    unit = 1 if by_epoch else steps_per_epoch
    t = xp.asarray(step, dtype=float)
    t = xp.floor(t / steps_per_epoch) if by_epoch else t
    warmup = round(recipe.warmup * unit)
    delay = 0 if recipe.warmup_overlaps else warmup
    clock = xp.maximum(t - delay, 0.0)
    length = recipe.epochs * unit - delay - recipe.reach_final
    after = _after_warmup(recipe, clock, max(length, 1), unit, xp)
    peak, start = recipe.learning_rate, recipe.warmup_start
    if start is None:
        during = peak * (t + 1.0) / max(warmup, 1)
    else:
        during = start + (peak - start) * t / max(warmup, 1)
    return xp.where(t < warmup, during, after)


def average_decay(recipe: Recipe, updates: Any, xp: Any = np) -> Any:
    """Compute the decay a of the average of the parameters in update number `updates`, counted from 1.

    With `ema_warmup`, a is min(`ema`, 1 - k^(-2/3)) in update k, as in timm's
    `ModelEmaV3(use_warmup=True)` when it is given k: the first update copies the parameters.
    """
    if not recipe.ema_warmup:
        return recipe.ema
    return xp.minimum(recipe.ema, 1.0 - xp.asarray(updates, dtype=float) ** (-2.0 / 3.0))


def _after_warmup(recipe: Recipe, clock: Any, length: int, unit: int, xp: Any) -> Any:
    peak, final = recipe.learning_rate, recipe.final_learning_rate
    left = xp.maximum(length - clock, 0.0) / length  # 1 - c / L, exact where it is small
    match recipe.schedule:
        case "cosine":
            # (1 + cos(pi c / L)) / 2 by the half angle: in float32 the sum would lose the end's digits
            return final + (peak - final) * xp.sin(0.5 * np.pi * left) ** 2
        case "linear":
            return final + (peak - final) * left
        case "step":
            apart = max(round(recipe.step_epochs * unit), 1)
            return peak * recipe.step_factor ** xp.floor(clock / apart)
        case "rsqrt":
            return peak / xp.sqrt(1.0 + clock / (recipe.rsqrt_epochs * unit))
        case _:
            return xp.full_like(clock, peak)


def step_seed(recipe: Recipe, step: int) -> int:
    """Compute the 64-bit seed of PyTorch's draws in update number `step`, counted from 0.

    The seed depends on the recipe's seed and the step alone, as JAX's key does, so that a run has no
    other random state to carry along.
    """
    return int(np.random.SeedSequence([recipe.seed, step]).generate_state(1, np.uint64)[0])
