"""Copies of modules, without the warnings that torch raises when it makes them."""

from __future__ import annotations

import copy
import warnings
from typing import TypeVar

import torch

M = TypeVar("M", bound=torch.nn.Module)


def copied(module: M) -> M:
    """Return a copy of a module, with parameters of its own."""
    with warnings.catch_warnings(), torch.no_grad():  # with gradients a traced one has no leaves
        # torch's own copy of what it exported
        warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated", FutureWarning)
        return copy.deepcopy(module)
