"""Models of other libraries, each with our twins on the same weights, as sides of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

import vit_jax
import vit_torch
from parity.porting.checkpoint import read_checkpoint
from parity.verifier.diff import Difference, InProcess, compare_sides, subject_of
from tests.support.dialect_proof import images_for
from tests.support.timm_models import saved as saved_by_timm


class Twins:
    """Our models on somebody's weights, and images for all of them."""

    def __init__(self, saved: Path, **given: Any) -> None:
        stored = read_checkpoint(saved, given=given or None)
        self.cfg = stored.config
        self.images = images_for(self.cfg)  # (B, C, H, W)
        arrays = {name: each.load() for name, each in stored.arrays.items()}
        self.torch = vit_torch.from_arrays(self.cfg, arrays)
        with jax.enable_x64(True):
            self.jax = vit_jax.from_arrays(self.cfg, arrays)


def twins_of(model: torch.nn.Module, folder: Path, **given: Any) -> Twins:
    """Those of a model that its library would save in its own way.

    Args:
        folder: where it is saved.
        given: what its file does not say.
    """
    if hasattr(model, "save_pretrained"):
        model.save_pretrained(folder)
    elif hasattr(model, "pretrained_cfg"):
        saved_by_timm(folder, model)
    else:
        torch.save(model.state_dict(), folder / "saved.pt")
        folder = folder / "saved.pt"
    return Twins(folder, **given)


def compared(a: Any, b: Any, images: np.ndarray, dtype: str = "float64", **options: Any) -> Difference:
    """Two models on the same images (B, C, H, W), each in its framework's layout."""
    return compare_sides(*(side(model, images, dtype) for model in (a, b)), **options)


def side(model: Any, images: np.ndarray, dtype: str = "float64") -> InProcess:
    """One of them."""
    mine = images if isinstance(model, torch.nn.Module) else images.transpose(0, 2, 3, 1)
    return InProcess(subject_of(type(model).__name__, (model, mine)), dtype=dtype)
