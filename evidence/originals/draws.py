"""Making other libraries draw their random numbers from our generator, in the order they ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch


class Draws:
    """Replacement of Python's `random`, and of numpy's global functions."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.random, self.uniform, self.gauss = rng.random, rng.uniform, rng.normal

    def randint(self, low: int, high: int) -> int:
        """Draw an integer, both ends included, as Python's does."""
        return int(self.rng.integers(low, high, endpoint=True))

    def choice(self, options: list[Any], count: int, replace: bool, p: None) -> list[Any]:
        """Draw as `np.random.choice` does for timm's RandAugment."""
        assert (replace, p) == (True, None)
        return [options[index] for index in self.rng.integers(0, len(options), count)]


@contextmanager
def numpy_draws(rng: np.random.Generator) -> Iterator[None]:
    """Make the global functions of numpy that timm's Mixup uses draw from `rng`."""
    functions = {
        "rand": lambda *size: rng.random(*size),
        "beta": lambda a, b, size=None: rng.beta(a, b, size),
        "randint": lambda low, high, size=None: rng.integers(low, high),
    }
    with mock.patch.multiple(np.random, **functions):
        yield


@contextmanager
def image_draws(rng: np.random.Generator) -> Iterator[None]:
    """Make the image transforms of timm and torchvision draw everything from `rng`."""
    from timm.data import auto_augment, random_erasing, transforms

    draws = Draws(rng)

    def coin(count: int) -> torch.Tensor:
        rng.uniform(-1.0, 1.0, 4)  # the draws of our affine moves, which these recipes do not make
        return torch.tensor([rng.random()], dtype=torch.float64)

    def noise(tensor: torch.Tensor) -> torch.Tensor:
        drawn = rng.standard_normal(tuple(tensor.shape), dtype=np.float32)
        return tensor.copy_(torch.from_numpy(drawn))

    with (
        mock.patch.object(transforms, "random", draws),
        mock.patch.object(auto_augment, "random", draws),
        mock.patch.object(random_erasing, "random", draws),
        mock.patch.object(np.random, "choice", draws.choice),
        mock.patch.object(torch, "rand", coin),
        mock.patch.object(torch.Tensor, "normal_", noise),
    ):
        yield
