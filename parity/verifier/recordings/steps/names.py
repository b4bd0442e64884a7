"""Verdict on a place that differs, the causes that it names, and what to change."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from parity.measure.site import Stage
from parity.verifier.report.compared import Compared
from vit_config import ConfigError


@dataclass(frozen=True)
class StepCause:
    """A known way in which two programs differ: with this one thing exchanged they are the same."""

    name: str
    """Slug, such as ``weight-decay`` or ``beta2``."""
    stage: str
    """Stage of the training step, by its name in `parity.measure.traces.format.Stage`."""
    where: tuple[str, ...]
    """Names of the parameters concerned; empty for all of a stage."""
    a: str
    """What A does, in words with numbers: ``beta2 0.95``."""
    b: str
    difference: float
    """||A's result - B's result||."""
    residual_a: float
    """||recomputed - result|| when A's result is recomputed by A's rule under this cause."""
    residual_b: float
    advice: str = ""
    """The line of code to change."""

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as plain data."""
        return asdict(self) | {"where": list(self.where)}


@dataclass(frozen=True)
class PlaceVerdict:
    """Causes of a difference at one place."""

    causes: tuple[StepCause, ...] = ()
    """Best first; empty if nothing differs or no known cause explains the difference."""
    unknown: str | None = None
    """Sentence to print if no known cause explains the difference."""
    compared: Compared | None = None
    """The two programs, compared on the parameters and the batch of the step; None if they were not."""
    same: bool = False
    """Whether both sides follow one rule, so that the difference is in what went into it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        said = {"causes": [cause.to_dict() for cause in self.causes], "unknown": self.unknown}
        return said | ({"programs": self.compared.to_dict()} if self.compared else {})


_TABLE = """
data-position: batch / data
    restore the position in the data: the epoch, the sampler's seed and state, the batches to skip
random-state: forward / random state
    save and restore the random state: torch.get_rng_state(), the key that JAX's loop splits
dropout: forward / dropout
    switch it off on both sides while they are compared: p = 0, model.eval(), deterministic=True
loss-function: loss / function
    one of F.cross_entropy / optax.softmax_cross_entropy_with_integer_labels, or of
    F.binary_cross_entropy_with_logits / optax.sigmoid_binary_cross_entropy, on both sides
loss-reduction: loss / reduction
    F.cross_entropy(..., reduction="mean"); losses.mean() in JAX
label-smoothing: loss / smoothing
    F.cross_entropy(..., label_smoothing=e); optax.smooth_labels(one_hot, e)
logit-scale: loss / logits
    give both losses the same multiple of the logits
missing-gradient: gradients / gradient
    remove detach(), no_grad, stop_gradient or requires_grad=False in front of these leaves
gradient-sign: gradients / sign
    differentiate the loss, not its negative
number-type: gradients / number type
    compute both in one type: no autocast and no dtype=bfloat16 on one side alone
gradient-scale: gradients / scale
    average over micro-batches and devices: loss / n before backward(), jax.lax.pmean, not psum
gradients-kept: gradients / gradients of the step before
    call optimizer.zero_grad() before every backward()
decay-in-gradient: gradients / decay in the gradient
    take the penalty of the weights out of the loss, or add it to the other
stale-gradients: clipped / step of the gradient; moments / step of the gradient
    update by the gradients of this step: optimizer.step() after backward(), tx.update() after grad
clip-kind: clipped / clipping
    torch.nn.utils.clip_grad_norm_(model.parameters(), c); optax.clip_by_global_norm(c)
clip-norm: clipped / max norm
    clip both to the same norm
clip-value: clipped / max value
    clip both to the same value
clip-epsilon: clipped / added to the norm; moments / added to the norm
    torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm, optax.clip_by_global_norm nothing: scale
    by min(1, c / norm) yourself on one side
schedule-shift: learning rate / shift
    call scheduler.step() after optimizer.step(); count updates from the same number
schedule-restart: learning rate / begins
    restore the schedule: scheduler.load_state_dict(...), the count in the state of optax
schedule-speed: learning rate / speed
    step the schedule once for each update: not for each micro-batch, and not for each process
learning-rate: learning rate / scale
    give both the same peak learning rate
schedule: learning rate / schedule
    give both schedules the same start, length and peak
rate-rounded: learning rate / number type of the rate; updated / number type of the rate
    optax computes a schedule in float32, even where everything else is float64: count in float64,
    or leave it: it is harmless
skipped-update: moments / update; updated / update
    torch.amp.GradScaler leaves out the update if a gradient is not finite, as
    optax.apply_if_finite does: use it on both sides, and find what overflows
mean-rounded: moments / mean of micro-batches
    optax.MultiSteps keeps the mean of micro-batches in float32, even where all else is float64:
    leave it, it is harmless
beta1: moments / beta1; updated / sign
    AdamW or Lion(..., betas=(beta1, beta2)); optax.adamw or optax.lion(..., b1=beta1)
beta2: moments / beta2
    AdamW(..., betas=(beta1, beta2)); optax.adamw(..., b2=beta2)
moments-start: moments / moments from
    keep the optimiser's state between steps, and load it with the weights
moments-gradient: moments / gradient
    clip before optimizer.step(); optax.chain(optax.clip_by_global_norm(c), optimizer)
coupled-decay: moments / decay in the gradient
    torch.optim.Adam adds weight_decay to the gradient, AdamW does not; in optax,
    add_decayed_weights stands before scale_by_adam or after it
decay-mask: moments / decayed leaves; updated / decayed leaves
    give both the same mask (optax.adamw(mask=...)) or groups of decayed parameters
epsilon: moments / epsilon; updated / epsilon
    AdamW(..., eps=e); optax.adamw(..., eps=e)
epsilon-place: moments / place of epsilon; updated / place of epsilon
    sqrt(v / (1 - beta2^t)) + eps: torch's eps, optax's eps and not its eps_root; eps_in_sqrt=False
first-moment-sum: moments / first moment
    weigh the new gradient by 1 - beta1
second-moment-sum: moments / second moment
    weigh the new square by 1 - beta2
momentum: moments / momentum
    SGD(..., momentum=m); optax.sgd(..., momentum=m)
dampening: moments / dampening
    SGD(..., dampening=0), which optax.sgd always has
not-updated: updated / moved
    give the optimiser these parameters, and those of the model that is trained: not of a copy
weight-decay: updated / weight decay
    give both the same weight_decay
decay-times-rate: updated / decay multiplied by
    p -= lr * weight_decay * p, as torch.optim.AdamW and optax.adamw have it
decay-order: updated / decay
    decay the parameters before they are updated, or within it
bias-correction: updated / bias correction
    divide the moments by 1 - beta^t, with t = 1 at the first update
amsgrad: updated / second moment
    AdamW(..., amsgrad=False); optax.adamw, not optax.amsgrad, which keeps the largest of corrected
    moments where torch keeps the largest before they are corrected
update-rate: updated / learning rate
    multiply the update by this step's learning rate, once; count updates from the same number
rate-groups: updated / rates of leaves
    give the same parameters the same rate: groups of torch.optim, labels of optax.multi_transform
update-gradient: updated / gradient
    clip before the optimiser is called
ema-order: updated / averaged
    average the parameters behind the update on both sides, or before it
ema-start: updated / begins
    begin both averages with the parameters, or both with zeros
ema-warm-up: updated / over the steps
    give both averages the same decay in every step: min(decay, (1 + t) / (10 + t)), or one decay
ema-decay: updated / decay of the average
    give both moving averages the same decay
nesterov: updated / momentum
    SGD(..., nesterov=False); optax.sgd(..., nesterov=False)
"""
"""Each cause: a stable slug, the stages and aspects of hypotheses that it names; below it, the line to
change."""

CONVENTIONS = frozenset({"clip-epsilon", "mean-rounded", "rate-rounded"})
"""Causes that are ways of the frameworks and no mistake: EQUAL but for these."""

CAUSES = {
    tuple(place.split(" / ")): (name, " ".join(advice.split()))
    for name, places, advice in re.findall(r"^(\S+): (.*)\n((?: {4}.*\n)+)", _TABLE, re.M)
    for place in places.split("; ")
}
"""For each stage and aspect of the hypotheses: the slug, and the line to change."""


def named(
    stage: Stage,
    aspect: str,
    words: Sequence[str],
    difference: float = 0.0,
    where: tuple[str, ...] = (),
    residuals: tuple[float, float] = (0.0, 0.0),
    at: Stage | None = None,
) -> StepCause:
    """Return the cause that two sides differ in one aspect of a stage.

    Args:
        words: what A does, and what B does.
        at: the stage of the cause, if that is another one.
    """
    name, advice = CAUSES[stage, aspect]
    return StepCause(name, at or stage, where, words[0], words[1], difference, *residuals, advice)


def check_causes(names: Iterable[str]) -> None:
    """Refuse names of causes that do not exist.

    Raises:
        ConfigError: says which, and what was meant or all that there are.
    """
    known = sorted({name for name, _ in CAUSES.values()})
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the causes are {', '.join(known)}"
            raise ConfigError(f"--accept {name}: no cause has this name; {hint}")
