"""A trained model as a teacher: the logits of a weights file."""

from collections.abc import Callable

import numpy as np
import torch

from vit_config import Weights
from vit_torch.weights import from_arrays, to_numpy


def make_teacher(weights: Weights) -> Callable[[np.ndarray], np.ndarray]:
    """Make the function from normalised images (B, H, W, C) to logits (B, classes), in the type of
    the parameters, on the GPU that torch sees; nothing is dropped."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = from_arrays(weights.config, weights.arrays).to(device).eval()
    dtype = next(model.parameters()).dtype

    @torch.no_grad()
    def teach(images: np.ndarray) -> np.ndarray:
        placed = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))  # (B, C, H, W)
        return to_numpy(model(placed.to(device, dtype), return_tokens=False).logits)

    return teach
