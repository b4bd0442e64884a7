"""Table of the causes of different training steps: names, and what to change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from parity.measure.site import Stage
from vit_config import ConfigError

_CLIP_EPSILON = (
    "clip-epsilon",
    "torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm, optax.clip_by_global_norm nothing: scale"
    " by min(1, c / norm) yourself on one side",
)

_STALE = (
    "stale-gradients",
    "update by the gradients of this step: optimizer.step() after backward(), tx.update() after grad",
)

_SKIPPED = (
    "skipped-update",
    "torch.amp.GradScaler leaves out the update if a gradient is not finite, as optax.apply_if_finite"
    " does: use it on both sides, and find what overflows",
)

_RATE_ROUNDED = (
    "rate-rounded",
    "optax computes a schedule in float32, even where everything else is float64: count in float64,"
    " or leave it: it is harmless",
)

_MEAN = (
    "mean-rounded",
    "optax.MultiSteps keeps the mean of micro-batches in float32, even where all else is float64: leave"
    " it, it is harmless",
)

_MASK = (
    "decay-mask",
    "give both the same mask (optax.adamw(mask=...)) or groups of decayed parameters",
)

_EPSILON = ("epsilon", "AdamW(..., eps=e); optax.adamw(..., eps=e)")

_PLACE = (
    "epsilon-place",
    "sqrt(v / (1 - beta2^t)) + eps: torch's eps, optax's eps and not its eps_root; eps_in_sqrt=False",
)

CONVENTIONS = frozenset({"clip-epsilon", "mean-rounded", "rate-rounded"})
"""Causes that are ways of the frameworks and no mistake: EQUAL but for these."""

CAUSES: dict[tuple[Stage, str], tuple[str, str]] = {
    ("batch", "data"): (
        "data-position",
        "restore the position in the data: the epoch, the sampler's seed and state, the batches to skip",
    ),
    ("forward", "random state"): (
        "random-state",
        "save and restore the random state: torch.get_rng_state(), the key that JAX's loop splits",
    ),
    ("forward", "dropout"): (
        "dropout",
        "switch it off on both sides while they are compared: p = 0, model.eval(), deterministic=True",
    ),
    ("loss", "function"): (
        "loss-function",
        "one of F.cross_entropy / optax.softmax_cross_entropy_with_integer_labels, or of"
        " F.binary_cross_entropy_with_logits / optax.sigmoid_binary_cross_entropy, on both sides",
    ),
    ("loss", "reduction"): (
        "loss-reduction",
        'F.cross_entropy(..., reduction="mean"); losses.mean() in JAX',
    ),
    ("loss", "smoothing"): (
        "label-smoothing",
        "F.cross_entropy(..., label_smoothing=e); optax.smooth_labels(one_hot, e)",
    ),
    ("loss", "logits"): ("logit-scale", "give both losses the same multiple of the logits"),
    ("gradients", "gradient"): (
        "missing-gradient",
        "remove detach(), no_grad, stop_gradient or requires_grad=False in front of these leaves",
    ),
    ("gradients", "sign"): ("gradient-sign", "differentiate the loss, not its negative"),
    ("gradients", "number type"): (
        "number-type",
        "compute both in one type: no autocast and no dtype=bfloat16 on one side alone",
    ),
    ("gradients", "scale"): (
        "gradient-scale",
        "average over micro-batches and devices: loss / n before backward(), jax.lax.pmean, not psum",
    ),
    ("gradients", "gradients of the step before"): (
        "gradients-kept",
        "call optimizer.zero_grad() before every backward()",
    ),
    ("gradients", "decay in the gradient"): (
        "decay-in-gradient",
        "take the penalty of the weights out of the loss, or add it to the other",
    ),
    ("clipped", "step of the gradient"): _STALE,
    ("clipped", "clipping"): (
        "clip-kind",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), c); optax.clip_by_global_norm(c)",
    ),
    ("clipped", "max norm"): ("clip-norm", "clip both to the same norm"),
    ("clipped", "max value"): ("clip-value", "clip both to the same value"),
    ("clipped", "added to the norm"): _CLIP_EPSILON,
    ("learning rate", "shift"): (
        "schedule-shift",
        "call scheduler.step() after optimizer.step(); count updates from the same number",
    ),
    ("learning rate", "begins"): (
        "schedule-restart",
        "restore the schedule: scheduler.load_state_dict(...), the count in the state of optax",
    ),
    ("learning rate", "speed"): (
        "schedule-speed",
        "step the schedule once for each update: not for each micro-batch, and not for each process",
    ),
    ("learning rate", "scale"): ("learning-rate", "give both the same peak learning rate"),
    ("learning rate", "schedule"): ("schedule", "give both schedules the same start, length and peak"),
    ("learning rate", "number type of the rate"): _RATE_ROUNDED,
    ("moments", "update"): _SKIPPED,
    ("moments", "step of the gradient"): _STALE,
    ("moments", "mean of micro-batches"): _MEAN,
    ("moments", "beta1"): ("beta1", "AdamW(..., betas=(beta1, beta2)); optax.adamw(..., b1=beta1)"),
    ("moments", "beta2"): ("beta2", "AdamW(..., betas=(beta1, beta2)); optax.adamw(..., b2=beta2)"),
    ("moments", "moments from"): (
        "moments-start",
        "keep the optimiser's state between steps, and load it with the weights",
    ),
    ("moments", "gradient"): (
        "moments-gradient",
        "clip before optimizer.step(); optax.chain(optax.clip_by_global_norm(c), optimizer)",
    ),
    ("moments", "added to the norm"): _CLIP_EPSILON,
    ("moments", "decay in the gradient"): (
        "coupled-decay",
        "torch.optim.Adam adds weight_decay to the gradient, AdamW does not; in optax,"
        " add_decayed_weights stands before scale_by_adam or after it",
    ),
    ("moments", "decayed leaves"): _MASK,
    ("moments", "epsilon"): _EPSILON,
    ("moments", "place of epsilon"): _PLACE,
    ("moments", "first moment"): ("first-moment-sum", "weigh the new gradient by 1 - beta1"),
    ("moments", "second moment"): ("second-moment-sum", "weigh the new square by 1 - beta2"),
    ("moments", "momentum"): ("momentum", "SGD(..., momentum=m); optax.sgd(..., momentum=m)"),
    ("moments", "dampening"): ("dampening", "SGD(..., dampening=0), which optax.sgd always has"),
    ("updated", "update"): _SKIPPED,
    ("updated", "moved"): (
        "not-updated",
        "give the optimiser these parameters, and those of the model that is trained: not of a copy",
    ),
    ("updated", "weight decay"): ("weight-decay", "give both the same weight_decay"),
    ("updated", "decay multiplied by"): (
        "decay-times-rate",
        "p -= lr * weight_decay * p, as torch.optim.AdamW and optax.adamw have it",
    ),
    ("updated", "decayed leaves"): _MASK,
    ("updated", "decay"): ("decay-order", "decay the parameters before they are updated, or within it"),
    ("updated", "epsilon"): _EPSILON,
    ("updated", "place of epsilon"): _PLACE,
    ("updated", "bias correction"): (
        "bias-correction",
        "divide the moments by 1 - beta^t, with t = 1 at the first update",
    ),
    ("updated", "second moment"): (
        "amsgrad",
        "AdamW(..., amsgrad=False); optax.adamw, not optax.amsgrad, which keeps the largest of corrected"
        " moments where torch keeps the largest before they are corrected",
    ),
    ("updated", "learning rate"): (
        "update-rate",
        "multiply the update by this step's learning rate, once; count updates from the same number",
    ),
    ("updated", "number type of the rate"): _RATE_ROUNDED,
    ("updated", "rates of leaves"): (
        "rate-groups",
        "give the same parameters the same rate: groups of torch.optim, labels of optax.multi_transform",
    ),
    ("updated", "sign"): ("beta1", "Lion(..., betas=(beta1, beta2)); optax.lion(..., b1=beta1)"),
    ("updated", "gradient"): ("update-gradient", "clip before the optimiser is called"),
    ("updated", "averaged"): (
        "ema-order",
        "average the parameters behind the update on both sides, or before it",
    ),
    ("updated", "begins"): ("ema-start", "begin both averages with the parameters, or both with zeros"),
    ("updated", "over the steps"): (
        "ema-warm-up",
        "give both averages the same decay in every step: min(decay, (1 + t) / (10 + t)), or one decay",
    ),
    ("updated", "decay of the average"): ("ema-decay", "give both moving averages the same decay"),
    ("updated", "momentum"): ("nesterov", "SGD(..., nesterov=False); optax.sgd(..., nesterov=False)"),
}
"""For each stage and aspect of the hypotheses: a stable slug, and the line to change."""


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
