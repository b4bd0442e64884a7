"""Check that a model read from memory computes the same as the original.

Modules state only what they keep as attributes. Whatever else a user changed, a run shows.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from parity.measure.error import relative_error
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.reading.libraries.installed import library_of
from parity.porting.recognition.matching import some
from vit_config import WeightsError


def refuse_another_function(source: Any, checkpoint: Checkpoint) -> None:
    """Compare a model with the PyTorch twin of its schema, in float64 on one random image.

    Args:
        source: a model of timm, torchvision or open_clip; it is copied, and stays as it is.
        checkpoint: what was read of it.

    Raises:
        WeightsError: they compute different functions, or the model has a head that no schema has.
    """
    if checkpoint.unheld:
        raise WeightsError(
            f"{checkpoint.name}: its classifier, {some(checkpoint.unheld)}, is none that a schema has;"
            " put torch.nn.Identity() or one linear layer in its place"
        )
    import torch

    import vit_torch

    cfg, library = checkpoint.config, library_of(checkpoint)
    images = torch.from_numpy(
        np.random.default_rng(0).standard_normal((1, cfg.in_channels, *cfg.image_size))
    )
    theirs = copy.deepcopy(getattr(source, "visual", source)).cpu().double().eval()
    arrays = {name: stored.load().astype(np.float64) for name, stored in checkpoint.arrays.items()}
    twin = vit_torch.from_arrays(cfg, arrays)
    with torch.no_grad():
        expected, actual = library.call(theirs, images, cfg).numpy(), twin.logits(images).numpy()
    error, limit = relative_error(actual, expected), library.limit(checkpoint)
    if not error <= limit:
        raise WeightsError(
            f"{checkpoint.name}: what its modules state is another function, off by {error:.1e}, limit"
            f" {limit:.0e}; it has an option that they do not keep, or that no schema has; state the"
            " field by parity.load(..., given={...})"
        )
