"""Reads and writes the checkpoints of the JAX trainer's run folders as training states."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from parity.runs.folder import CHECKPOINTS, saved_steps
from parity.runs.folder_choice import choose, without_moments
from parity.runs.folder_manifest import DescribedJob
from parity.runs.run import Run
from parity.runs.state import TrainingState
from parity.runs.state_jax import JaxLayout, from_jax, to_jax, with_parts
from vit_config import CheckpointError
from vit_config.files.foreign import parse_json, read_text
from vit_jax.step import TrainState, init_state
from vit_jax.train.checkpoint import Checkpoints, from_named, to_named
from vit_train.folder.checkpoints import DamagedError
from vit_train.folder.manifest import Manifest


def read(
    folder: Path, what: DescribedJob, manifest: Manifest, step: int | None, cold: bool
) -> tuple[TrainingState, list[str]]:
    """Read the state of a step, with notes on what was skipped; see `parity.runs.folder.read_run`."""
    cfg, recipe = what.config, what.recipe
    with ExitStack() as stack:
        stack.enter_context(jax.enable_x64(recipe.dtype == "float64"))
        abstract = jax.eval_shape(lambda: init_state(cfg, recipe, 1, what.lora))
        saved = stack.enter_context(Checkpoints(folder / CHECKPOINTS, run_id=manifest.run_id))

        def restore(step: int) -> tuple[TrainState, list[str]]:
            try:
                return saved.restore(step, abstract), []
            except CheckpointError:
                in_file = _saved_moments(folder, manifest, abstract, step)
                if in_file is None:
                    raise
            lacking, notes = without_moments(folder, recipe, in_file, step, cold)
            places = _moments(abstract)
            named = to_named(abstract)
            missing = [path for path, (moment, name) in places.items() if moment not in in_file[name]]
            restored = saved.restore(step, {n: x for n, x in named.items() if n not in missing})
            zeros = {
                path: np.zeros(named[path].shape, named[path].dtype)
                for path, (_, name) in places.items()
                if name in lacking
            }
            return from_named(abstract, restored | zeros), notes

        (state, notes), skipped = choose(folder, saved_steps(folder), step, restore, DamagedError)
        return from_jax(JaxLayout(cfg), state), [*skipped, *notes]


class _Moment(NamedTuple):
    moment: str
    name: str


def _moments(abstract: TrainState) -> dict[str, _Moment]:
    """Return moment and parameter of each optimiser tensor, by its path in a checkpoint."""
    labels = with_parts(abstract, lambda part, tree: {name: f"{part} {name}" for name in tree})  # pyright: ignore
    pairs = {path: each.split(" ") for path, each in to_named(labels).items() if isinstance(each, str)}
    return {path: _Moment(*each) for path, each in pairs.items() if each[0] not in ("parameters", "ema")}


def _saved_moments(
    folder: Path, manifest: Manifest, abstract: TrainState, step: int
) -> dict[str, set[str]] | None:
    """Return the moments of each parameter in a checkpoint; None if anything but moments is missing."""
    try:
        about = parse_json(read_text(folder / CHECKPOINTS / str(step) / "meta" / "metadata"))
        run_id, there = about["run_id"], set(about["tensors"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    moments, expected = _moments(abstract), set(to_named(abstract))
    if run_id != manifest.run_id or not there < expected or not expected - there <= set(moments):
        return None
    saved: dict[str, set[str]] = {name: set() for name in abstract.params}
    for path, (moment, name) in moments.items():
        if path in there:
            saved[name].add(moment)
    return saved


def write(folder: Path, run: Run, manifest: Manifest) -> None:
    """Write a checkpoint."""
    with jax.enable_x64(run.recipe.dtype == "float64"):
        state = to_jax(JaxLayout(run.config), run.state, run.recipe, run.steps_per_epoch or 1)
        host = jax.tree.map(lambda x: np.array(x, copy=True), state)
        with Checkpoints(folder / CHECKPOINTS, run_id=manifest.run_id) as saved:
            saved.save(run.state.step, host)
