"""Mistakes in the training step: in the loss, in clipping, in the schedule and in the update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from evidence.faults.adam import AdamRule
from parity.faults.step_table import STEP_FAULTS, StepFault
from parity.faults.twin import Twin, TwinName

Clip = Callable[[Sequence[Any], float], list[Any]]
"""Function of gradients and the largest norm; it returns clipped gradients."""


@dataclass(frozen=True)
class UpdateFault(StepFault):
    """A mistake between the gradients and the new parameters."""

    clip: Clip | None = None
    adam: AdamRule | None = None
    decay_times_rate: bool = True
    """Whether decay is multiplied by the learning rate."""
    zeroed: bool = True
    """Whether gradients start from zero, not from those of the step before."""

    def patched(self, twin: TwinName) -> AbstractContextManager[None]:
        """See `StepFault`."""
        if twin == "jax":
            from evidence.faults.steps_jax import patched
        else:
            from evidence.faults.steps_torch import patched
        return patched(self)


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

NEW: tuple[StepFault, ...] = (
    StepFault("other_smoothing", "label smoothing 0.01 more", "loss", "label-smoothing",
              lambda r: {"label_smoothing": r.label_smoothing + 0.01}),
    StepFault("focal_loss", "each image's loss times 1 - its probability", "loss", None,
              loss=lambda twin, loss: loss * (1 - twin.xp.exp(-loss))),
    StepFault("summed_accumulation", "gradients of two halves of a batch summed, not averaged",
              "gradients", "gradient-scale", loss=_doubled_gradient),
    UpdateFault("gradients_not_zeroed", "gradients added to those of the step before", "gradients",
                "gradients-kept", zeroed=False, twins=("torch",)),
    UpdateFault("clip_epsilon", "1e-6 added to the norm in clipping (seen where the norm is small)",
                "clipped", "clip-epsilon", clip=_clip_with_epsilon, needs=CLIPPED),
    StepFault("other_clip_norm", "gradients clipped to twice the norm", "clipped", "clip-norm",
              lambda r: {"clip_norm": 2 * (r.clip_norm or 1)}, needs=CLIPPED),
    StepFault("missing_clip", "gradients not clipped", "clipped", "clip-kind",
              lambda r: {"clip_norm": None}, needs=CLIPPED),
    UpdateFault("clip_each_leaf", "each parameter's gradient clipped by itself", "clipped",
                "clip-kind", clip=_clip_each, needs=CLIPPED),
    UpdateFault("clip_by_value", "each number of the gradient clipped", "clipped", "clip-kind",
                clip=_clip_values, needs=CLIPPED),
    UpdateFault("squashed_gradients", "gradients squashed instead of clipped", "clipped", None,
                clip=_squash, needs=CLIPPED),
    StepFault("schedule_one_behind", "the learning rate of the step before: warm-up from zero",
              "learning rate", "schedule-shift",
              rate=lambda rate, r, step, per: rate(r, step - 1, per),
              needs={"warmup_epochs": bool}),
    StepFault("rate_a_thousandth_more", "the learning rate 0.1 % larger", "learning rate",
              "learning-rate", rate=lambda rate, r, step, per: 1.001 * rate(r, step, per)),
    StepFault("beta1", "beta1 0.95", "moments", "beta1", lambda r: {"beta1": 0.95}),
    StepFault("coupled_decay", "decay added to the gradient, as Adam with L2 does", "moments",
              "coupled-decay", lambda r: {"optimizer": "adam"}, needs=DECAYED),
    UpdateFault("undamped_momentum", "the gradient added to the first moment as it is", "moments",
                "first-moment-sum", adam=AdamRule(damped=False)),
    UpdateFault("kept_momentum", "the first moment kept from before", "moments", "moments-start",
                adam=AdamRule(first_moment_kept=True)),
    UpdateFault("decay_without_rate", "decay not multiplied by the learning rate", "updated",
                "decay-times-rate", decay_times_rate=False, needs=DECAYED),
    StepFault("decay_everywhere", "biases, norms and tables decay too", "updated", "decay-mask",
              lambda r: {"decay": "all"}, needs=DECAYED | {"decay": lambda rule: rule != "all"}),
    StepFault("missing_decay", "no weight decay", "updated", "weight-decay",
              lambda r: {"weight_decay": 0.0}, needs=DECAYED),
    UpdateFault("epsilon_in_the_root", "the epsilon of Adam added inside the root", "updated",
                "epsilon-place", adam=AdamRule(root_of_sum=True)),
    StepFault("larger_epsilon", "the epsilon of Adam a hundred times larger", "updated", "epsilon",
              lambda r: {"adam_eps": 100 * r.adam_eps}),
    UpdateFault("missing_correction", "Adam without bias correction", "updated", "bias-correction",
                adam=AdamRule(corrected=False)),
    UpdateFault("late_correction", "Adam's bias correction one step ahead", "updated",
                "bias-correction", adam=AdamRule(late=1)),
    UpdateFault("sign_update", "the sign of the first moment, as in Lion", "updated", None,
                adam=AdamRule(sign=True)),
)  # fmt: skip
STEP_FAULTS.update((each.name, each) for each in NEW)
