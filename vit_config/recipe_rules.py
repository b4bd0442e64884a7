"""Fields of a recipe that contradict each other, each pair in one sentence that names both values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vit_config.recipe import Recipe


def contradictions(recipe: Recipe) -> Iterator[str]:
    """Yield one sentence for each pair of fields that cannot both hold."""
    yield from _schedule(recipe)
    yield from _batch(recipe)
    yield from _decay(recipe)
    yield from _ineffective(recipe)
    yield from _types(recipe)
    yield from _classes(recipe)
    yield from _on_devices(recipe)


def _schedule(recipe: Recipe) -> Iterator[str]:
    if recipe.warmup_epochs >= recipe.epochs:
        yield (
            f"warmup_epochs = {recipe.warmup_epochs} leaves nothing of epochs = {recipe.epochs};"
            " make the warm-up shorter, or give it as warmup_fraction"
        )
    if recipe.warmup_epochs and recipe.warmup_fraction:
        yield (
            f"warmup_epochs = {recipe.warmup_epochs} and warmup_fraction = {recipe.warmup_fraction} say"
            " the same; leave one out"
        )
    if recipe.final_learning_rate > recipe.learning_rate:
        yield (
            f"final_learning_rate = {recipe.final_learning_rate} is above learning_rate ="
            f" {recipe.learning_rate}; the schedule only goes down"
        )
    if recipe.warmup_start is not None and recipe.warmup_start > recipe.learning_rate:
        yield (
            f"warmup_start = {recipe.warmup_start} is above learning_rate = {recipe.learning_rate};"
            " warm-up only goes up"
        )


def _batch(recipe: Recipe) -> Iterator[str]:
    if recipe.batch_size % recipe.accumulate:
        yield (
            f"batch_size = {recipe.batch_size} cannot be computed in accumulate = {recipe.accumulate}"
            " equal parts; choose a divisor"
        )
    if recipe.mix.mixes and recipe.mix.style == "timm" and recipe.batch_size % 2:
        yield (
            f"batch_size = {recipe.batch_size} leaves one image without a partner, but mix.style = "
            '"timm" mixes pairs; choose an even size'
        )


def _decay(recipe: Recipe) -> Iterator[str]:
    if bool(recipe.decayed) != (recipe.decay == "listed"):
        yield (
            f'decay = "{recipe.decay}" with {len(recipe.decayed)} names in decayed: names go with'
            ' decay = "listed", and it with names'
        )
    if recipe.layer_rule != "timm" and recipe.layer_decay == 1.0:
        yield (
            f'layer_rule = "{recipe.layer_rule}" does nothing where layer_decay = 1.0; leave it out, or'
            " set layer_decay"
        )
    if recipe.optimizer == "lamb" and not recipe.weight_decay:
        yield (
            'optimizer = "lamb" adapts only what decays, but weight_decay = 0.0, which leaves Adam; set'
            ' weight_decay, or optimizer = "adamw"'
        )


def _ineffective(recipe: Recipe) -> Iterator[str]:
    for field, other, values in GOES_WITH:
        value, other_value = getattr(recipe, field), getattr(recipe, other)
        other_value = other_value or (recipe.warmup if other == "warmup_epochs" else other_value)
        if value != type(recipe).model_fields[field].default and not _holds(other_value, values):
            remedy = f", or set {other} = {' or '.join(map(json.dumps, values))}" if values else ""
            yield (
                f"{field} = {json.dumps(value)} does nothing where {other} = {json.dumps(other_value)};"
                f" leave it out{remedy}"
            )


def _types(recipe: Recipe) -> Iterator[str]:
    for field in ("warmup_epochs", "step_epochs"):
        value = getattr(recipe, field)
        if recipe.schedule_unit == "epoch" and value % 1:
            yield (
                f'{field} = {value} is no whole number, and schedule_unit = "epoch" counts whole'
                ' epochs; round it, or set schedule_unit = "step"'
            )
    reduced = recipe.reduce_dtype
    if reduced not in ("auto", recipe.dtype) and "float64" in (reduced, recipe.dtype):
        yield (
            f'reduce_dtype = "{reduced}" with dtype = "{recipe.dtype}": float64 goes with float64 alone;'
            ' use reduce_dtype = "auto"'
        )
    if recipe.dtype == "float64" and recipe.kernel != "reference":
        yield (
            f'kernel = "{recipe.kernel}" computes in float32 even where dtype = "float64"; use'
            ' kernel = "reference"'
        )


def _classes(recipe: Recipe) -> Iterator[str]:
    if recipe.several and recipe.loss != "sigmoid_mean":
        yield (
            f'labels = "several" with loss = "{recipe.loss}": each class has a sigmoid of its own, and'
            ' the loss is their mean; set loss = "sigmoid_mean"'
        )
    for field, usual in (("sampling", "each_once"), ("distill", "none")):
        if recipe.several and (value := getattr(recipe, field)) != usual:
            yield f'labels = "several" with {field} = "{value}", which is for one label; leave it out'
    if recipe.class_weights == "balanced" and recipe.sampling == "balanced":
        yield (
            'class_weights = "balanced" and sampling = "balanced" make up for the same twice; leave one'
            " out"
        )
    if recipe.class_weights != "balanced" and any(each <= 0 for each in recipe.class_weights):
        yield f"class_weights = {list(recipe.class_weights)}: each must be greater than 0"


def _on_devices(recipe: Recipe) -> Iterator[str]:
    if recipe.device_side is None:
        return
    values = {name: (attrgetter(name)(recipe), usual) for name, usual in ON_DEVICES.items()}
    wrong = {name: each for name, each in values.items() if each[0] != each[1]}
    if wrong:
        actual, required = (
            ", ".join(f"{name} = {json.dumps(each[i])}" for name, each in wrong.items()) for i in (0, 1)
        )
        yield (
            f"device_side = {recipe.device_side} with {actual}: the devices make torchvision's crops,"
            f" flips, jitter, erasing and mixing; set {required}, or leave device_side out"
        )


ON_DEVICES = {
    "distill": "none",
    "augment.crop": "torchvision",
    "augment.shift": 0.0,
    "augment.rotate": 0.0,
    "augment.scale": 0.0,
    "augment.policy": "none",
}
"""The one value of fields that changes on the devices go with."""


def _holds(value: Any, values: tuple[Any, ...]) -> bool:
    return value in values if values else bool(value)


_ADAM = ("optimizer", ("adamw", "adam", "lamb"))
_SGD = ("optimizer", ("sgd",))
_ENDS = ("schedule", ("cosine", "linear"))
GOES_WITH: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("beta1", *_ADAM),
    ("beta2", *_ADAM),
    ("adam_eps", *_ADAM),
    ("momentum", *_SGD),
    ("nesterov", *_SGD),
    ("nesterov", "momentum", ()),
    ("decay_times", "optimizer", ("adamw",)),
    ("decay_times", "weight_decay", ()),
    ("decay", "weight_decay", ()),
    ("clip_eps", "clip_norm", ()),
    ("label_threshold", "loss", ("sigmoid", "sigmoid_mean")),
    ("distill_weight", "distill", ("soft", "hard")),
    ("distill_temperature", "distill", ("soft",)),
    ("ema_warmup", "ema", ()),
    ("warmup_start", "warmup_epochs", ()),
    ("warmup_overlaps", "warmup_epochs", ()),
    ("final_learning_rate", *_ENDS),
    ("reach_final", *_ENDS),
    ("step_epochs", "schedule", ("step",)),
    ("step_factor", "schedule", ("step",)),
    ("rsqrt_epochs", "schedule", ("rsqrt",)),
)
"""Fields that have an effect only if another has one of these values; if none are named, any but zero
and null."""
