"""Torch models of a library, as `dialect_proof` wants them: logits, a file, strict loading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tests.support.dialect_proof import Logits


def logits_of(model: Callable) -> Logits:
    """What a model makes of images (B, C, H, W) float64."""

    def run(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(images)).numpy()

    return run


def save_torch(model: torch.nn.Module, folder: Path, name: str = "saved.pt") -> Path:
    """A file of a model's state dict."""
    torch.save(model.state_dict(), folder / name)
    return folder / name


def strictly(build: Callable[[], torch.nn.Module], prefix: str = "") -> Callable[[Path], Logits]:
    """Load a file into a fresh model, where every name must be the model's and none may be missing.

    Args:
        prefix: what stands before every name in the file and not in the model.
    """

    def load(path: Path) -> Logits:
        state = torch.load(path, weights_only=True)
        assert all(name.startswith(prefix) for name in state)
        model = build()
        model.load_state_dict({n.removeprefix(prefix): each for n, each in state.items()}, strict=True)
        return logits_of(model)

    return load
