"""The recipe that both trainers read: how a model is trained, field by field."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    model_validator,
)

from vit_config.augmentation import Augment, Mix
from vit_config.base import FloatTuple, NameTuple, PositiveInt, Schema
from vit_config.errors import ConfigError, InputError
from vit_config.init import is_fixed
from vit_config.recipe_rules import contradictions
from vit_config.schema import ViTConfig

ONLY_JAX = {"kernel": "reference", "reduce_dtype": "auto", "device_side": None}
"""Fields that only JAX's trainer has, with the one value that PyTorch's, on one device, can do."""

Interval = Annotated[int, Field(gt=0)]
"""Epochs or steps between two events, of which there may be none."""


class Recipe(Schema, frozen=True):
    """One training run: optimiser, schedule, data order, numerics and what is kept.

    Raises:
        ConfigError: an unknown field, a wrong type, or fields that contradict each other.
    """

    later: ClassVar = (
        "warmup_fraction", "eval_crop", "labels", "class_weights", "sampling", "device_side"
    )  # fmt: skip

    epochs: PositiveInt = 10
    """Passes over the training set."""
    batch_size: PositiveInt = 128
    """Images per step, over all devices together."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of initial values, data order, augmentation and dropout."""

    optimizer: Literal["adamw", "adam", "sgd", "lamb"] = "adamw"
    """Optimiser: AdamW (decoupled decay, arXiv 1711.05101); Adam (arXiv 1412.6980) or SGD with momentum,
    whose decay is coupled: added to the gradient, as in torch.optim; LAMB (arXiv 1904.00962): AdamW,
    with the update of each decayed parameter scaled to the norm of the parameter."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of Adam's first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of Adam's second moment."""
    adam_eps: PositiveFloat = 1e-8
    """Epsilon added to the root of Adam's second moment."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the sum of gradients that SGD follows; gradients are added undamped."""
    nesterov: bool = False
    """Let SGD follow the gradient plus momentum times the sum, one step ahead of the sum."""
    weight_decay: NonNegativeFloat = 0.0
    """Strength of weight decay."""
    decay_times: Literal["learning_rate", "schedule"] = "learning_rate"
    """Factor of AdamW's decay: the learning rate, as in torch and optax, or the learning rate over its
    peak, as in Big Vision, so that the strength does not depend on the peak."""
    decay: Literal["matrices", "not_vectors", "all", "listed"] = "matrices"
    """Parameters that decay: weights of linear and convolution layers; those, tokens and tables, but no
    bias, as in Hugging Face's Trainer; all; or those that `decayed` lists."""
    decayed: NameTuple = ()
    """Names of the parameters that decay, if `decay` is listed."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Factor of a layer's learning rate for every layer above it (ELECTRA, BEiT)."""
    layer_rule: Literal["timm", "mae"] = "timm"
    """Rule that assigns parameters to layers: timm's puts the final norm into the last block's layer,
    that of MAE and BEiT into the head's, as it does all tokens but the class token."""
    clip_norm: PositiveFloat | None = None
    """Scale gradients down to this global norm when they exceed it; None never clips."""
    clip_eps: NonNegativeFloat = 0.0
    """Epsilon added to the norm that divides gradients: 1e-6 in torch's clip_grad_norm_, 0 in optax."""
    accumulate: PositiveInt = 1
    """Parts to compute a batch in, one after the other; gradients are averaged over them."""
    loss: Literal["softmax", "sigmoid", "sigmoid_mean"] = "softmax"
    """Cross entropy of a softmax, or of a sigmoid for each class: summed over classes, as in Big Vision,
    or averaged, as in torch and timm."""
    labels: Literal["one", "several"] = "one"
    """Classes of an image: exactly one; or any number of them, none included, each by a sigmoid."""
    class_weights: Literal["balanced"] | FloatTuple = ()
    """Factor of each class's part of the loss, in the order of the labels; balanced: the number of
    training labels over the number of classes times that of the class, which is 1 in the mean over
    these labels; by default 1 for all."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target spread evenly over all classes."""
    label_threshold: float | None = Field(default=None, ge=0, lt=1)
    """Threshold above which targets, after smoothing, become 1, the others 0: timm's
    `bce_target_thresh`; 0 in DeiT III, where every class with a share of a mixed image is a full
    one."""
    distill: Literal["none", "soft", "hard"] = "none"
    """Target of a distillation token's head, by a teacher's logits, as in DeiT (arXiv 2012.12877): their
    softened distribution, or the class of the largest. The class head learns the labels."""
    distill_weight: float = Field(default=0.5, gt=0, le=1)
    """Share of the teacher in the loss."""
    distill_temperature: PositiveFloat = 1.0
    """Divisor of the logits of head and teacher in the softened distribution."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Decay, at every step, of an average of the parameters, which is then evaluated and exported; None
    keeps none."""
    ema_warmup: bool = False
    """Let the average's decay grow as 1 - k^(-2/3) with the number k of updates, up to `ema`."""

    schedule: Literal["cosine", "linear", "step", "rsqrt", "constant"] = "cosine"
    """Schedule of the learning rate after warm-up, see `vit_config.schedule`."""
    schedule_unit: Literal["step", "epoch"] = "step"
    """Unit of time in which the learning rate changes; an epoch for most schedulers of timm and torch.
    Then warm-up and the steps of a step schedule are whole epochs."""
    warmup_epochs: NonNegativeFloat = 0.0
    """Epochs of linear warm-up, part of the total."""
    warmup_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Warm-up as a share of the run, in place of `warmup_epochs`: a shorter run has a shorter one."""
    warmup_start: NonNegativeFloat | None = None
    """Learning rate of the first step, from which warm-up reaches the peak one step after its last, as
    in optax, timm and Hugging Face; null: the peak over the number of warm-up steps, the last of which
    reaches it."""
    warmup_overlaps: bool = False
    """Let warm-up hide the beginning of the schedule, as in timm, instead of delaying it."""
    final_learning_rate: NonNegativeFloat = 0.0
    """Learning rate at which cosine and linear schedules end."""
    reach_final: bool = False
    """Run the last step at the final learning rate, otherwise reached one step later."""
    step_epochs: PositiveFloat = 30.0
    """Epochs between the steps of a step schedule."""
    step_factor: float = Field(default=0.1, gt=0, lt=1)
    """Factor of the learning rate at each step of a step schedule."""
    rsqrt_epochs: PositiveFloat = 10.0
    """Epochs after which a reciprocal-root schedule is at the peak over the root of two."""

    pixels: Literal["data", "half", "imagenet"] = "data"
    """Mean and deviation that images are normalised by: those of the weights to start from, or else of
    the training images; one half each, as in Big Vision (pixels from -1 to 1); or ImageNet's, as in timm
    and DeiT. Only `data` resizes images as the weights to start from do."""
    eval_crop: float | None = Field(default=None, gt=0, le=1)
    """Share of a resized image that evaluation sees, from its centre; 0.875 is 224 of 256; null: that of
    the weights to start from if `pixels` is data, else the whole image."""
    exif: Literal["ignore", "apply"] | None = None
    """Whether photos are turned as their camera noted (EXIF); null: as the weights to start from say, or
    else as their pixels lie."""
    augment: Augment = Augment()
    """Random changes to training images."""
    mix: Mix = Mix()
    """Mixing of the images and labels of a batch."""
    device_side: PositiveInt | None = None
    """Make `augment` and `mix` on the devices, in JAX: images are sent there in 8 bits, on squares of so
    many pixels a side, and larger ones are reduced before; null changes them on the host."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Type that the model computes in; parameters are float64 for float64, else float32."""
    reduce_dtype: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    """Type in which devices that share a batch add their gradients; auto leaves it to the compiler: the
    computing type on a TPU, at least float32 on a CPU."""
    kernel: Literal["reference", "xla", "cudnn"] = "reference"
    """Attention kernel: plain einsum and softmax, or jax.nn.dot_product_attention through XLA or cuDNN,
    which never computes in float64."""
    matmul_precision: Literal["default", "high", "highest"] = "default"
    """JAX matmul precision; "default" lets a TPU or GPU use its fast reduced formats."""

    sampling: Literal["each_once", "balanced"] = "each_once"
    """Images of an epoch: each once; or equally many of each class, as many in all, so that those of a
    small class come several times an epoch, and all images of a class equally often."""
    validation_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of the training set to hold out and evaluate while training: the last of a set of
    tensorflow-datasets, which is shuffled, and spread evenly over others; 0 trains on everything."""
    watch_test: bool = False
    """Evaluate the test set while training, too; without it the test set is read once, at the end.
    Choose nothing by these scores."""
    eval_every_epochs: Interval | None = None
    """Epochs between evaluations while training, of the held-out share or the test set; None: a tenth of
    the run, at most 10."""
    checkpoint_every_epochs: Interval = 10
    """Epochs between checkpoints (the last epoch is always kept)."""
    log_every_steps: Interval = 10
    """Steps between log lines; metrics are fetched from the device only then."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for sentence in contradictions(self):
            raise ValueError(sentence)
        return self

    @property
    def warmup(self) -> float:
        """Epochs of warm-up."""
        return self.warmup_fraction * self.epochs or self.warmup_epochs

    @property
    def epochs_between_evaluations(self) -> int:
        """Epochs from one evaluation to the next; there is one at the end as well."""
        return self.eval_every_epochs or min(10, max(1, self.epochs // 10))

    @property
    def evaluations(self) -> int:
        """Evaluations of the whole run."""
        return -(-self.epochs // self.epochs_between_evaluations)

    def shortened(self, epochs: int) -> Self:
        """Return the recipe for fewer epochs if its warm-up would not fit them, with the warm-up's share
        of the run; else the recipe as it is."""
        if not 0 < epochs <= self.warmup_epochs:
            return self
        warmup = self.warmup_epochs * epochs / self.epochs
        if self.schedule_unit == "epoch":
            warmup = float(int(warmup))
        without = {} if warmup else {"warmup_start": None, "warmup_overlaps": False}
        return self.replace(epochs=epochs, warmup_epochs=warmup, **without)

    @property
    def loss_options(self) -> dict[str, Any]:
        """Options of `cross_entropy`, beside logits and labels."""
        return {
            "kind": self.loss,
            "smoothing": self.label_smoothing,
            "threshold": self.label_threshold,
            # `vit_train.batches.balance.resolve_class_weights` puts counted, balanced weights here
            "weights": () if self.class_weights == "balanced" else self.class_weights,
        }

    @property
    def several(self) -> bool:
        """Whether an image may have several labels."""
        return self.labels == "several"


def is_decayed(recipe: Recipe, name: str, ndim: int) -> bool:
    """Return whether weight decay applies to the parameter called `name` (its timm-style name)."""
    if is_fixed(name):
        return False
    match recipe.decay:
        case "matrices":
            return ndim >= 2 and name.endswith("weight")
        case "not_vectors":
            return ndim >= 2 and "bias" not in name
        case "listed":
            return name in recipe.decayed
        case _:
            return True


def decay_mask(recipe: Recipe, ndims: Mapping[str, int]) -> dict[str, bool]:
    """Return whether each parameter of a model decays, by name.

    Args:
        ndims: the number of axes of each parameter, by name.

    Raises:
        ConfigError: the recipe lists a name that the model does not have.
    """
    for name in recipe.decayed:
        if name not in ndims:
            near = difflib.get_close_matches(name, ndims, n=1)
            remedy = (
                f"did you mean {near[0]!r}?" if near else f"the first of its names is {min(ndims)!r}"
            )
            raise ConfigError(
                f"decayed lists {name!r}, not one of the model's {len(ndims)} parameters; {remedy}"
            )
    return {name: is_decayed(recipe, name, ndim) for name, ndim in ndims.items()}


def decay_strength(recipe: Recipe) -> float:
    """Return the factor that decay multiplies by the learning rate and the parameter; for a decay that
    follows the schedule alone, the peak learning rate is divided out."""
    follows_schedule = recipe.decay_times == "schedule"
    return recipe.weight_decay / (recipe.learning_rate if follows_schedule else 1.0)


def check_distillation(recipe: Recipe, cfg: ViTConfig) -> None:
    """Refuse to distill into a model that has no head for it.

    Raises:
        ConfigError: names both fields.
    """
    if recipe.distill != "none" and not (cfg.distill_token and cfg.num_classes):
        raise ConfigError(
            f'distill = "{recipe.distill}" teaches the head of a distillation token, but distill_token ='
            f" {str(cfg.distill_token).lower()} and num_classes = {cfg.num_classes}; set distill_token ="
            " true"
        )


def check_parts(recipe: Recipe, size: int) -> None:
    """Refuse a batch that cannot be computed in equal parts.

    Raises:
        InputError: names both numbers.
    """
    if size % recipe.accumulate:
        raise InputError(
            f"a batch of {size} images cannot be computed in accumulate = {recipe.accumulate} equal"
            " parts; change one of them"
        )
