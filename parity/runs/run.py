"""A training run that can be resumed: its state, and everything that the next steps depend on."""

from __future__ import annotations

from dataclasses import dataclass

from parity.runs.state import TrainingState
from vit_config import Recipe, ViTConfig
from vit_config.lora import Lora


@dataclass(frozen=True)
class Run:
    """The state of a training run between two steps, of either framework.

    The schedule's position and the next batch follow from the recipe and `state.step`, dropout masks
    from the recipe's seed and `state.step`.
    """

    config: ViTConfig
    recipe: Recipe
    state: TrainingState
    notes: tuple[str, ...] = ()
    """Notes on what was skipped, or starts anew."""
    lora: Lora | None = None
    """The adapters among the parameters; None if there are none."""
    frozen: frozenset[str] = frozenset()
    """Parameters that are not trained: JAX keeps zeros for their moments, PyTorch none."""
