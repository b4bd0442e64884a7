"""Reads and writes the checkpoints of the PyTorch trainer's run folders as training states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from parity.runs.folder import CHECKPOINTS, saved_steps
from parity.runs.folder_choice import choose, without_moments
from parity.runs.folder_manifest import DescribedJob
from parity.runs.run import Run
from parity.runs.state import TrainingState
from parity.runs.state_torch import from_torch, to_torch
from vit_config import CheckpointError, Recipe, ViTConfig
from vit_config.adapters import is_adapter
from vit_config.job import Job
from vit_torch.leaves import leaves
from vit_torch.optim import init_ema, make_optimizer
from vit_torch.train.adapters import add_adapters
from vit_torch.train.checkpoint import Checkpoints
from vit_torch.train.program import make_program
from vit_torch.train.state import TrainState, named_moments, store, unstore
from vit_torch.weights import abstract_model, from_arrays
from vit_train.folder.checkpoints import DamagedError
from vit_train.folder.manifest import Manifest

_NOT_NUMBERS = (
    *("params", "param_names", "lr", "initial_lr"),  # the learning rate is set before every step
    *("foreach", "fused", "capturable", "differentiable"),
)
"""Entries of torch's parameter groups that are not hyperparameters of the update."""
DECOUPLED = "decoupled_weight_decay"


def read(
    folder: Path, what: DescribedJob, manifest: Manifest, step: int | None, cold: bool
) -> tuple[TrainingState, list[str]]:
    """Read the state of a step, with notes on what was skipped; see `parity.runs.folder.read_run`."""
    cfg, recipe, lora = what.config, what.recipe, what.lora
    saved = _checkpoints(folder, cfg, recipe, manifest)
    abstract = make_program(cfg, recipe, 1, frozen=what.frozen, lora=lora).abstract_state
    stored, notes = choose(
        folder, saved_steps(folder), step, lambda each: saved.restore(each, abstract), DamagedError
    )
    optimizer, step = stored["optimizer"], stored["step"]
    where = folder / CHECKPOINTS / f"{step}.pt"
    _check_numbers(where, recipe, optimizer["param_groups"], abstract["optimizer"]["param_groups"])
    moments = named_moments(optimizer)
    saved_moments = {name: moments.get(name, {}) for name in stored["model"] if name not in what.frozen}
    _check_counts(where, saved_moments, step)
    lacking, more = without_moments(folder, recipe, saved_moments, step, cold)
    shell = add_adapters(abstract_model(cfg), lora, recipe.seed)
    state = unstore(stored, shell, recipe, torch.device("cpu"))
    training = from_torch(step, state.model, state.optimizer, state.ema, recipe)
    for arrays in training.moments.values():
        for name in lacking:  # one moment without the other would be worse than none
            arrays[name].fill(0)
    return training, [*notes, *more]


def write(folder: Path, run: Run, manifest: Manifest) -> None:
    """Write a checkpoint."""
    own = {name: value for name, value in run.state.params.items() if not is_adapter(name)}
    model = add_adapters(from_arrays(run.config, own), run.lora, run.recipe.seed)
    optimizer = make_optimizer(model, run.recipe)
    ema = init_ema(run.recipe, model)
    to_torch(run.state, model, optimizer, ema, run.recipe)
    if not run.state.step:
        optimizer.state.clear()  # torch creates moments at the first update
    for leaf in leaves(model):
        if leaf.name in run.frozen:
            optimizer.state.pop(leaf.variable, None)
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


def _check_numbers(
    where: Path, recipe: Recipe, groups: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    """Refuse an optimiser whose groups or hyperparameters are not those of the recipe."""
    if len(groups) != len(expected):
        raise CheckpointError(
            f"{where}: the optimiser has {len(groups)} groups of parameters, the recipe makes"
            f" {len(expected)}; it belongs to another recipe"
        )
    ours, theirs = _by_name(expected), _by_name(groups)
    for name, numbers in ours.items():
        there = theirs.get(name)
        if there is None:
            raise CheckpointError(
                f"{where}: no group of the optimiser has {name}; it belongs to another model"
            )
        if there.keys() != numbers.keys():
            raise CheckpointError(
                f"{where}: the optimiser has {', '.join(there)}, that of the recipe ({recipe.optimizer})"
                f" {', '.join(numbers)}; it is another optimiser"
            )
        for field, value in numbers.items():
            if there[field] != value:
                raise CheckpointError(
                    f"{where}: the optimiser has {field} = {there[field]} for {name}, the recipe"
                    f" {value}; it belongs to another recipe"
                )


def _by_name(groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {field: value for field, value in group.items() if field not in _NOT_NUMBERS}
        for group in groups
        for name in group["param_names"]
    }


def _check_counts(where: Path, saved: Mapping[str, Mapping[str, torch.Tensor]], step: int) -> None:
    """Refuse moments with another count of updates than the step: optax has one count for all."""
    for name, moments in saved.items():
        count = float(moments["step"]) if "step" in moments else step
        if count != step:
            raise CheckpointError(
                f"{where}: the optimiser has updated {name} {count:g} times in {step} steps; only a"
                " state in which each step updates all parameters can be carried over"
            )
