"""A training run that can be carried on: its state, and all that decides what comes next."""

from __future__ import annotations

from dataclasses import dataclass

from parity.runs.state import TrainingState
from vit_config import Recipe, ViTConfig
from vit_config.lora import Lora


@dataclass(frozen=True)
class Run:
    """A run between two steps, wherever it was trained.

    The schedule's position and the next batch follow from the recipe and `state.step`, dropout's from
    the recipe's seed and `state.step`.
    """

    config: ViTConfig
    recipe: Recipe
    state: TrainingState
    steps_per_epoch: int | None = None
    """None where the folder does not say: it follows from the data set."""
    data: str | None = None
    """The data set's name; None if unknown."""
    fingerprint: str | None = None
    """Of the data set's contents."""
    notes: tuple[str, ...] = ()
    """What was not carried, or is carried otherwise than it was stored, a sentence each."""
    lora: Lora | None = None
    """Adapters among the parameters."""
    frozen: frozenset[str] = frozenset()
    """Parameters that are not trained: JAX keeps zeros for their moments, PyTorch none."""
