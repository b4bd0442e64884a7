"""Batches with a teacher's logits beside the labels."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from vit_config import ConfigError, InputError, Preprocess, Recipe

Teacher = Callable[[np.ndarray], np.ndarray]
"""Images (B, H, W, C) float32, normalised for the teacher, to logits (B, classes); those of
`vit_jax.teacher` and `vit_torch.teacher` are."""


def check_taught(recipe: Recipe) -> None:
    """Refuse to distill where batches come without a teacher's logits.

    Raises:
        ConfigError: says what brings them.
    """
    if recipe.distill != "none":
        raise ConfigError(
            f'distill = "{recipe.distill}" needs a teacher, which the command line cannot provide; set'
            ' distill = "none", or add its logits to batches by vit_train.distilling.taught'
        )


def taught(
    batches: Iterator[Mapping[str, Any]], teacher: Teacher, *, ours: Preprocess, theirs: Preprocess
) -> Generator[dict[str, Any], None, None]:
    """Add to each batch what a teacher says of the very images that the student sees, as DeiT does.

    Args:
        batches: with ``image`` (B, H, W, C), normalised by `ours`.
        theirs: the teacher's own normalisation.

    Raises:
        InputError: the two are of different numbers of channels.
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
    for batch in batches:
        images = batch["image"]
        seen = images if same else (images * std + mean - their_mean) / their_std
        yield {**batch, "teacher": teacher(seen)}
