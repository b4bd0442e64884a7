"""The checkpoints of the PyTorch trainer's run folders, as training states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from parity.runs.folder import CHECKPOINTS, choose
from parity.runs.run import Run
from parity.runs.state import TrainingState, moments_of, zeros
from parity.runs.state_torch import from_torch, to_torch
from vit_config import CheckpointError, Recipe, ViTConfig
from vit_config.job import Job
from vit_jax.train.manifest import Manifest
from vit_torch.optim import init_ema, make_optimizer
from vit_torch.train.checkpoint import Checkpoints, DamagedError
from vit_torch.train.program import make_program
from vit_torch.train.state import TrainState, named_moments, store, unstore
from vit_torch.weights import abstract_model, from_arrays


def read(
    folder: Path, cfg: ViTConfig, recipe: Recipe, manifest: Manifest, step: int | None, cold: bool
) -> tuple[TrainingState, list[str]]:
    """The state of a step, and what was skipped; see `parity.runs.folder.read_run`."""
    saved = _checkpoints(folder, cfg, recipe, manifest)
    abstract = make_program(cfg, recipe, 1).abstract_state
    stored, notes = choose(
        folder, saved.saved_steps(), step, lambda each: saved.restore(each, abstract), DamagedError
    )
    _check_groups(folder, stored["optimizer"], abstract["optimizer"])
    kept = named_moments(stored["optimizer"])
    without = [
        name
        for name in stored["model"]
        if any(moment not in kept.get(name, {}) for moment in moments_of(recipe))
    ]
    if without and stored["step"] and moments_of(recipe):
        said = f"{folder}: {without[0]} and {len(without) - 1} more have no moments"
        if not cold:
            raise CheckpointError(
                f"{said}, so {recipe.optimizer} would start cold after {stored['step']} steps; give"
                " --cold if it shall"
            )
        notes.append(f"{said}: they start from zero")
    place = torch.device("cpu")
    state = unstore(stored, abstract_model(cfg), recipe, place)
    found = from_torch(state.step, state.model, state.optimizer, state.ema, recipe)
    if not stored["step"]:
        found = TrainingState(0, found.params, zeros(found.params, recipe), found.ema)
    return found, notes


def write(folder: Path, run: Run, manifest: Manifest) -> None:
    """Write a checkpoint."""
    model = from_arrays(run.config, run.state.params)
    optimizer = make_optimizer(model, run.recipe)
    ema = init_ema(run.recipe, model)
    to_torch(run.state, model, optimizer, ema, run.recipe)
    state = TrainState(run.state.step, model, optimizer, ema)
    saved = _checkpoints(folder, run.config, run.recipe, manifest)
    saved.save(run.state.step, store(state))


def _checkpoints(folder: Path, cfg: ViTConfig, recipe: Recipe, manifest: Manifest) -> Checkpoints:
    data = manifest["data"]
    return Checkpoints(
        folder / CHECKPOINTS,
        run_id=manifest.run_id,
        job=Job(cfg, recipe, data["name"]),
        fingerprint=data["fingerprint"],
    )


def _check_groups(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse an optimiser whose groups are not those that the recipe makes."""
    ours, theirs = (
        [(group["weight_decay"], sorted(group["param_names"])) for group in each["param_groups"]]
        for each in (found, wanted)
    )
    if len(ours) != len(theirs):
        raise CheckpointError(
            f"{folder}: the optimiser has {len(ours)} groups of parameters, the recipe makes"
            f" {len(theirs)}; it is of another recipe"
        )
    for (decay, names), (other, expected) in zip(ours, theirs, strict=True):
        if decay != other or names != expected:
            raise CheckpointError(
                f"{folder}: a group of {len(names)} parameters with weight_decay = {decay}, where the"
                f" recipe has one of {len(expected)} with {other}; it is of another recipe"
            )
