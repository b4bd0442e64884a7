"""Batches with a teacher's logits beside the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vit_config import ConfigError, InputError, Preprocess, Recipe, ViTConfig, Weights

Teacher = Callable[[np.ndarray], np.ndarray]
"""Function from images (B, H, W, C) float32, normalised for the teacher, to logits (B, classes);
`vit_jax.teacher` and `vit_torch.teacher` make such functions."""


@dataclass(frozen=True)
class TeacherWeights:
    """A trained model whose logits a run learns from."""

    name: str
    """The file, or the name on the Hub, as the user gave it."""
    digest: str
    """SHA-256 (hex) of its bytes."""
    weights: Weights

    @property
    def identity(self) -> dict[str, str]:
        """The facts that determine the teacher's logits, as JSON values."""
        return {"name": self.name, "digest": self.digest}


def check_taught(recipe: Recipe, cfg: ViTConfig, teacher: TeacherWeights | None) -> None:
    """Refuse to distill without a teacher, or from one with other images or classes.

    Raises:
        ConfigError: the message names both values.
    """
    if (recipe.distill == "none") != (teacher is None):
        raise ConfigError(
            f'distill = "{recipe.distill}" needs a teacher; add --teacher FILE, or set distill = "none"'
            if teacher is None
            else f'--teacher {teacher.name} teaches nothing where distill = "none"; set --recipe.distill'
            " hard or soft"
        )
    if teacher is None:
        return
    theirs = teacher.weights.config
    differing = {
        name: f"{name} = {getattr(theirs, name)} there, {getattr(cfg, name)} here"
        for name in ("image_size", "in_channels", "num_classes")
        if getattr(theirs, name) != getattr(cfg, name)
    }
    if differing:
        size = "{}x{}".format(*cfg.image_size)
        fit = f", or `parity convert --image-size {size}` it" if [*differing] == ["image_size"] else ""
        raise ConfigError(
            f"--teacher {teacher.name} sees the very images that the student sees, and names the same"
            f" classes: {'; '.join(differing.values())}; choose another{fit}"
        )
    if teacher.weights.preprocess is None:
        raise ConfigError(
            f"--teacher {teacher.name}: nobody says how images are prepared for it; say it by `parity"
            " convert --preprocess`"
        )


def make_teach(
    teacher: Teacher, *, ours: Preprocess, theirs: Preprocess
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Make the function that adds to a batch the teacher's logits, ``teacher`` (B, classes), for the
    very images that the student sees, as DeiT does.

    Args:
        ours: how ``image`` (B, H, W, C) of a batch is normalised.
        theirs: the teacher's own normalisation.

    Raises:
        InputError: the two have different numbers of channels.
    """
    if len(ours.mean) != len(theirs.mean):
        raise InputError(
            f"the teacher sees {len(theirs.mean)} channels, the student {len(ours.mean)}; choose a"
            " teacher of the same images"
        )
    mean, std, their_mean, their_std = (
        np.asarray(values, np.float32) for values in (ours.mean, ours.std, theirs.mean, theirs.std)
    )
    same = (ours.mean, ours.std) == (theirs.mean, theirs.std)

    def teach(batch: Mapping[str, Any]) -> dict[str, Any]:
        images = batch["image"]
        seen = images if same else (images * std + mean - their_mean) / their_std
        return {**batch, "teacher": teacher(seen)}

    return teach
