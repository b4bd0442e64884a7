"""How a model is trained: the recipe object both trainers read, its schedule and its decay rule."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from vit_config.base import Schema


class Augment(Schema, frozen=True):
    """Random changes to each training image; every field 0 or false leaves images as they are."""

    shift: float = Field(default=0.0, ge=0, le=0.5)
    """Largest shift, as a share of the image's height and width."""
    rotate: float = Field(default=0.0, ge=0, le=180)
    """Largest rotation either way, in degrees."""
    scale: float = Field(default=0.0, ge=0, lt=1)
    """Largest enlargement or reduction, as a share of the size."""
    flip: bool = False
    """Mirror left and right with probability one half."""


class Recipe(Schema, frozen=True):
    """One training run: optimiser, schedule, data order, numerics and what is kept.

    Raises:
        ConfigError: an unknown field, a wrong type, or fields that contradict each other.
    """

    epochs: PositiveInt = 10
    """Passes over the training set."""
    batch_size: PositiveInt = 128
    """Images per step, over all devices together."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of initial values, data order, augmentation and dropout."""

    optimizer: Literal["adamw", "adam"] = "adamw"
    """AdamW (decoupled decay times the learning rate, arXiv 1711.05101, as torch and optax have it),
    or Adam with coupled L2 (decay added to the gradient, as torch.optim.Adam has it)."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Decay of the second moment."""
    adam_eps: PositiveFloat = 1e-8
    """Epsilon added to the root of the second moment."""
    weight_decay: NonNegativeFloat = 0.0
    """Strength of weight decay."""
    decay: Literal["matrices", "all"] = "matrices"
    """What decays: weights of linear and convolution layers, or every parameter."""
    clip_norm: PositiveFloat | None = None
    """Scale gradients down to this global norm when they exceed it; None never clips."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target spread evenly over all classes."""

    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate after warm-up: half a cosine down to final_learning_rate, or constant."""
    warmup_epochs: NonNegativeFloat = 0.0
    """Epochs of linear warm-up, part of the total."""
    final_learning_rate: NonNegativeFloat = 0.0
    """Where the cosine ends."""

    augment: Augment = Augment()
    """Random changes to training images."""
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    """Type the model computes in; parameters are float64 for float64, else float32."""
    kernel: Literal["reference", "xla", "cudnn"] = "reference"
    """Attention: plain einsum and softmax, or jax.nn.dot_product_attention through XLA or cuDNN, which
    never computes in float64."""
    matmul_precision: Literal["default", "high", "highest"] = "default"
    """JAX matmul precision; "default" lets a TPU or GPU use its fast reduced formats."""

    validation_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Last share of the training set, as stored, that is held out and evaluated while training; 0
    trains on everything."""
    watch_test: bool = False
    """Evaluate the test set while training too; without it the test set is
    read once, at the end. Choose nothing by it."""
    eval_every_epochs: PositiveInt = 10
    """Epochs between evaluations while training, of what the two fields above name."""
    checkpoint_every_epochs: PositiveInt = 10
    """Epochs between checkpoints (the last epoch is always kept)."""
    log_every_steps: PositiveInt = 10
    """Steps between log lines; metrics are fetched from the device only then."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs = {self.warmup_epochs} leaves nothing of epochs = {self.epochs};"
                " make the warm-up shorter"
            )
        if self.final_learning_rate > self.learning_rate:
            raise ValueError(
                f"final_learning_rate = {self.final_learning_rate} is above learning_rate ="
                f" {self.learning_rate}; the schedule only goes down"
            )
        if self.schedule == "constant" and self.final_learning_rate:
            raise ValueError(
                f"final_learning_rate = {self.final_learning_rate} is never reached with schedule ="
                ' "constant"; set it to 0 or schedule = "cosine"'
            )
        if self.dtype == "float64" and self.kernel != "reference":
            raise ValueError(
                f'kernel = "{self.kernel}" computes in float32 even where dtype = "float64"; use'
                ' kernel = "reference"'
            )
        return self


def learning_rate(recipe: Recipe, step: Any, steps_per_epoch: int, xp: Any = np) -> Any:
    """The learning rate of update number `step`, counted from 0.

    With W = warmup_epochs * steps_per_epoch (rounded) and T = epochs * steps_per_epoch: step t < W
    runs at peak * (t + 1) / W; from there on a cosine over progress (t - W) / (T - W), which starts at
    the peak and would reach the final rate at step T, one past the last.

    Args:
        step: an integer, or an array of the namespace `xp` (a traced one under `jax.jit`).
        xp: numpy or jax.numpy; the result has its widest float type.
    """
    warmup = round(recipe.warmup_epochs * steps_per_epoch)
    total = recipe.epochs * steps_per_epoch
    t = xp.asarray(step, dtype=float)
    peak, final = recipe.learning_rate, recipe.final_learning_rate
    if recipe.schedule == "cosine":
        progress = xp.clip((t - warmup) / max(total - warmup, 1), 0.0, 1.0)
        after = final + (peak - final) * 0.5 * (1.0 + xp.cos(np.pi * progress))
    else:
        after = xp.full_like(t, peak)
    return xp.where(t < warmup, peak * (t + 1.0) / max(warmup, 1), after)


def is_decayed(recipe: Recipe, name: str, ndim: int) -> bool:
    """Whether weight decay applies to the parameter called `name` (its timm-style name)."""
    return recipe.decay == "all" or (ndim >= 2 and name.endswith("weight"))
