"""ViT-B/16 at its own size, timm's beside the JAX twin: what a comparison of this size costs.

`parity diff evidence/vit_b.py:original evidence/vit_b.py:twin`
"""

from typing import Any

import numpy as np

import parity
from parity.porting.reading.libraries.peers import import_timm

IMAGES = np.random.default_rng(1).standard_normal((1, 224, 224, 3)).astype(np.float32)


def original() -> tuple[Any, tuple[Any]]:
    """Return timm's model and its image."""
    import torch

    torch.manual_seed(0)
    model = import_timm().create_model("vit_base_patch16_224").eval()
    return model, (torch.from_numpy(IMAGES).permute(0, 3, 1, 2),)


def twin() -> tuple[Any, tuple[np.ndarray]]:
    """Return the JAX twin of the same weights, and the same image."""
    return parity.to_jax(original()[0]), (IMAGES,)
