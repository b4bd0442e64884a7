"""A training run that can be resumed: its state, and everything that the next steps depend on."""

from __future__ import annotations

from dataclasses import dataclass

from parity.runs.state import TrainingState
from vit_config import Recipe, ViTConfig
from vit_config.lora import Lora


@dataclass(frozen=True)
class Run:
    """The state of a training run between two steps, of any framework or trainer.

    The schedule's position and the next batch follow from the recipe and `state.step`, dropout masks
    from the recipe's seed and `state.step`.
    """

    config: ViTConfig
    recipe: Recipe
    state: TrainingState
    steps_per_epoch: int | None = None
    """Updates in an epoch; None if the folder does not state it: it follows from the data set."""
    data: str | None = None
    """Name of the data set; None if unknown."""
    fingerprint: str | None = None
    """Fingerprint of the data set's contents."""
    notes: tuple[str, ...] = ()
    """Notes on state that is not carried over, or in another form than it was stored."""
    lora: Lora | None = None
    """The adapters among the parameters; None if there are none."""
    frozen: frozenset[str] = frozenset()
    """Parameters that are not trained: JAX keeps zeros for their moments, PyTorch none."""
