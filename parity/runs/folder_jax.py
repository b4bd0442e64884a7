"""The checkpoints of the JAX trainer's run folders, as training states."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import jax
import numpy as np

from parity.runs.folder import CHECKPOINTS, choose
from parity.runs.run import Run
from parity.runs.state import TrainingState
from parity.runs.state_jax import JaxLayout, from_jax, to_jax
from vit_config import Recipe, ViTConfig
from vit_jax.step import init_state
from vit_jax.train.checkpoint import Checkpoints, DamagedError
from vit_jax.train.manifest import Manifest


def read(
    folder: Path, cfg: ViTConfig, recipe: Recipe, manifest: Manifest, step: int | None, cold: bool
) -> tuple[TrainingState, list[str]]:
    """The state of a step, and what was skipped; see `parity.runs.folder.read_run`.

    A checkpoint without a moment is refused as one of another model, `cold` or not.
    """
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(recipe.dtype == "float64"))
        abstract = jax.eval_shape(lambda: init_state(cfg, recipe, 1))
        saved = stack.enter_context(Checkpoints(folder / CHECKPOINTS, run_id=manifest.run_id))
        state, notes = choose(
            folder, saved.saved_steps(), step, lambda each: saved.restore(each, abstract), DamagedError
        )
        return from_jax(JaxLayout(cfg), state), notes


def write(folder: Path, run: Run, manifest: Manifest) -> None:
    """Write a checkpoint."""
    with jax.enable_x64(run.recipe.dtype == "float64"):
        state = to_jax(JaxLayout(run.config), run.state, run.recipe, run.steps_per_epoch or 1)
        host = jax.tree.map(lambda x: np.array(x, copy=True), state)
        with Checkpoints(folder / CHECKPOINTS, run_id=manifest.run_id) as saved:
            saved.save(run.state.step, host)
