"""Mistakes in the training step: in the loss, in clipping, in the schedule and in the update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parity.faults.adam import AdamRule
from parity.faults.twin import TWINS, Twin, TwinName
from parity.measure.traces import Stage
from vit_config import Recipe

Clip = Callable[[Sequence[Any], float], list[Any]]
"""Function of gradients and the largest norm; it returns clipped gradients."""
Rate = Callable[[Callable[..., Any], Recipe, Any, int], Any]
"""Function of the schedule, a recipe, a step and the steps per epoch; it returns a learning rate."""


@dataclass(frozen=True)
class StepFault:
    """A deliberate mistake that can be injected into the training of a twin."""

    name: str
    summary: str
    stage: Stage
    """First stage that it changes, in which a comparison must locate it."""
    cause: str | None
    """Slug of the cause that `parity diff` must name first; None if it is no known cause."""
    recipe: Callable[[Recipe], dict[str, Any]] = field(default=lambda recipe: {})
    """Returns fields of the recipe with the wrong values that the twin gets."""
    loss: Callable[[Twin, Any], Any] | None = None
    """Returns the wrong loss for the loss of each image (B,)."""
    rate: Rate | None = None
    clip: Clip | None = None
    adam: AdamRule | None = None
    decay_times_rate: bool = True
    """Whether decay is multiplied by the learning rate."""
    zeroed: bool = True
    """Whether gradients start from zero, not from those of the step before."""
    twins: tuple[TwinName, ...] = TWINS
    """Twins that can have it."""
    needs: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the recipe, each with a test of the value that it needs to have the fault."""


def _norm(gradients: Sequence[Any]) -> Any:
    return sum((g * g).sum() for g in gradients) ** 0.5


def _clip_with_epsilon(gradients: Sequence[Any], largest: float) -> list[Any]:
    scale = (largest / (_norm(gradients) + 1e-6)).clip(max=1.0)
    return [g * scale for g in gradients]


def _clip_each(gradients: Sequence[Any], largest: float) -> list[Any]:
    return [g * (largest / (_norm([g]) + 1e-300)).clip(max=1.0) for g in gradients]


def _clip_values(gradients: Sequence[Any], largest: float) -> list[Any]:
    return [g.clip(-largest, largest) for g in gradients]


def _squash(gradients: Sequence[Any], largest: float) -> list[Any]:
    return [g / (1 + abs(g) / largest) for g in gradients]


def _doubled_gradient(twin: Twin, loss: Any) -> Any:
    return loss + (loss - twin.detached(loss))


CLIPPED: dict[str, Any] = {"clip_norm": bool}
DECAYED: dict[str, Any] = {"weight_decay": bool, "optimizer": lambda name: name == "adamw"}
COSINE: dict[str, Any] = {"schedule": lambda kind: kind == "cosine"}

STEP_FAULTS: dict[str, StepFault] = {
    each.name: each
    for each in (
        StepFault("loss_sum", "the loss summed over the images", "loss", "loss-reduction",
                  loss=lambda twin, loss: loss * len(loss)),
        StepFault("other_smoothing", "label smoothing 0.01 more", "loss", "label-smoothing",
                  lambda r: {"label_smoothing": r.label_smoothing + 0.01}),
        StepFault("focal_loss", "each image's loss times 1 - its probability", "loss", None,
                  loss=lambda twin, loss: loss * (1 - twin.xp.exp(-loss))),
        StepFault("summed_accumulation", "gradients of two halves of a batch summed, not averaged",
                  "gradients", "gradient-scale", loss=_doubled_gradient),
        StepFault("gradients_not_zeroed", "gradients added to those of the step before", "gradients",
                  "gradients-kept", zeroed=False, twins=("torch",)),
        StepFault("clip_epsilon", "1e-6 added to the norm in clipping (seen where the norm is small)",
                  "clipped", "clip-epsilon", clip=_clip_with_epsilon, needs=CLIPPED),
        StepFault("other_clip_norm", "gradients clipped to twice the norm", "clipped", "clip-norm",
                  lambda r: {"clip_norm": 2 * (r.clip_norm or 1)}, needs=CLIPPED),
        StepFault("missing_clip", "gradients not clipped", "clipped", "clip-kind",
                  lambda r: {"clip_norm": None}, needs=CLIPPED),
        StepFault("clip_each_leaf", "each parameter's gradient clipped by itself", "clipped",
                  "clip-kind", clip=_clip_each, needs=CLIPPED),
        StepFault("clip_by_value", "each number of the gradient clipped", "clipped", "clip-kind",
                  clip=_clip_values, needs=CLIPPED),
        StepFault("squashed_gradients", "gradients squashed instead of clipped", "clipped", None,
                  clip=_squash, needs=CLIPPED),
        StepFault("schedule_one_ahead", "the learning rate of the next step", "learning rate",
                  "schedule-shift", rate=lambda rate, r, step, per: rate(r, step + 1, per)),
        StepFault("schedule_one_behind", "the learning rate of the step before: warm-up from zero",
                  "learning rate", "schedule-shift",
                  rate=lambda rate, r, step, per: rate(r, step - 1, per),
                  needs={"warmup_epochs": bool}),
        StepFault("rate_a_thousandth_more", "the learning rate 0.1 % larger", "learning rate",
                  "learning-rate", rate=lambda rate, r, step, per: 1.001 * rate(r, step, per)),
        StepFault("beta1", "beta1 0.95", "moments", "beta1", lambda r: {"beta1": 0.95}),
        StepFault("beta2", "beta2 0.9989", "moments", "beta2", lambda r: {"beta2": 0.9989}),
        StepFault("coupled_decay", "decay added to the gradient, as Adam with L2 does", "moments",
                  "coupled-decay", lambda r: {"optimizer": "adam"}, needs=DECAYED),
        StepFault("undamped_momentum", "the gradient added to the first moment as it is", "moments",
                  "first-moment-sum", adam=AdamRule(damped=False)),
        StepFault("kept_momentum", "the first moment kept from before", "moments", "moments-start",
                  adam=AdamRule(first_moment_kept=True)),
        StepFault("decay_without_rate", "decay not multiplied by the learning rate", "updated",
                  "decay-times-rate", decay_times_rate=False, needs=DECAYED),
        StepFault("decay_everywhere", "biases, norms and tables decay too", "updated", "decay-mask",
                  lambda r: {"decay": "all"}, needs=DECAYED | {"decay": lambda rule: rule != "all"}),
        StepFault("missing_decay", "no weight decay", "updated", "weight-decay",
                  lambda r: {"weight_decay": 0.0}, needs=DECAYED),
        StepFault("epsilon_in_the_root", "the epsilon of Adam added inside the root", "updated",
                  "epsilon-place", adam=AdamRule(root_of_sum=True)),
        StepFault("larger_epsilon", "the epsilon of Adam a hundred times larger", "updated", "epsilon",
                  lambda r: {"adam_eps": 100 * r.adam_eps}),
        StepFault("missing_correction", "Adam without bias correction", "updated", "bias-correction",
                  adam=AdamRule(corrected=False)),
        StepFault("late_correction", "Adam's bias correction one step ahead", "updated",
                  "bias-correction", adam=AdamRule(late=1)),
        StepFault("sign_update", "the sign of the first moment, as in Lion", "updated", None,
                  adam=AdamRule(sign=True)),
    )
}  # fmt: skip
