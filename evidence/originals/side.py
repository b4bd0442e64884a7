"""The interface of every side of a comparison: it takes batches and has parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from vit_config import Recipe, ViTConfig

Arrays = dict[str, np.ndarray]
"""Parameters by common name, in PyTorch's layout, float64."""


class Case(NamedTuple):
    """A recipe made small enough to run in seconds, all but its sizes and lengths as shipped."""

    name: str
    config: ViTConfig
    recipe: Recipe
    steps_per_epoch: int
    steps: int
    start: Arrays
    """The initial parameters."""


class Side(Protocol):
    """One implementation of a case."""

    def step(self, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> float:
        """Do one update.

        Args:
            images: (B, H, W, C) float64, not mixed yet.
            labels: (B,) integers.
            rng: generator that mixing draws from.

        Returns:
            The mean loss before the update.
        """
        ...

    def params(self) -> Arrays:
        """Return the current parameters."""
        ...


class Original(NamedTuple):
    """The original of a recipe."""

    source: str
    """Author and parts of the original code."""
    make: Callable[[Case], Side]
    pixels: Callable[[Case, np.ndarray, np.random.Generator], np.ndarray] | None
    """Function from an image (h, w, C) uint8 to the original's augmented and normalised one, (H, W,
    C) float32; None where its code needs TensorFlow."""
