"""Both twins as sides of a comparison: models that can be run, and training steps that were recorded."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vit_jax
import vit_torch
from parity.faults.twin import TwinName
from parity.measure.redraw import random_batch, redraw
from parity.verifier.recordings import Recorded
from tests.support import fault_steps
from vit_config import Recipe, ViTConfig
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

TRAIN = {"torch": fault_steps.train_torch, "jax": fault_steps.train_jax}


def side(
    twin: TwinName, cfg: ViTConfig, dtype: str, size: tuple[int, int], offset: float = 0.0
) -> tuple[Any, np.ndarray]:
    """A twin of that schema with re-drawn weights, and images of that size.

    Args:
        offset: added to the positions, so that the norms see inputs of that mean.
    """
    parts = leaves(abstract_model(cfg))
    arrays = {leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0).astype(dtype) for leaf in parts}
    if offset:
        arrays["pos_embed"] = arrays["pos_embed"] + np.asarray(offset, dtype)
    images = random_batch(cfg.replace(image_size=size), 3, 0).images.astype(dtype)
    if twin == "jax":
        model: Any = vit_jax.from_arrays(cfg, arrays, kernel="reference")
        return model, images
    images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    model = vit_torch.from_arrays(cfg, arrays, kernel="reference")
    return model, images


class _Trained(Recorded):
    """A recording in a folder that lasts as long as it."""

    def __init__(self, train: Callable[..., Any], recipe: Recipe) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "right.trace"
        train(recipe, path)
        super().__init__(path)


@functools.cache
def trained(twin: TwinName, recipe: Recipe) -> Recorded:
    """Three training steps without a fault, recorded once."""
    return _Trained(TRAIN[twin], recipe)
