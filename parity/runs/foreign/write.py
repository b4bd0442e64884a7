"""Writes a run as a training state that timm, Hugging Face's Trainer or Lightning resumes from."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from parity.porting.formats import write_safetensors
from parity.porting.formats.base import Stored
from parity.runs.foreign import lightning, timm, trainer
from parity.runs.foreign.order import HF_WRITTEN
from parity.runs.foreign.target import FAMILIES, LibraryFiles, Named, plan
from parity.runs.run import Run
from vit_config import ConfigError
from vit_config.errors import CheckpointError
from vit_config.files.atomic import atomic_file, atomic_folder
from vit_config.recipe import decay_strength
from vit_config.schedule import learning_rate

_ELSEWHERE = {
    "num_classes": "num_classes", "in_chans": "in_chans", "gp": "global_pool", "drop": "drop_rate",
    "drop_path": "drop_path_rate",
}  # fmt: skip
"""Options that timm's script passes to the model beside ``model_kwargs``, with the model's names."""


def write_foreign(
    run: Run,
    out: str | Path,
    kind: str,
    *,
    like_file: str | Path | None = None,
    force: bool = False,
) -> tuple[str, ...]:
    """Write a run as a library's own training state, whole or not at all.

    Args:
        out: a file; for ``hf`` a folder.
        kind: ``timm`` (a checkpoint of its training script), ``hf`` (a checkpoint folder of the Trainer)
            or ``lightning`` (a ``.ckpt`` whose module holds the model as ``self.model``).
        like_file: a training state of the same model that the library wrote, whose order of parameters
            and groups are followed; default: those that the library makes.
        force: replace an existing `out`.

    Returns:
        Notes on what the file does not state.

    Raises:
        ConfigError: the kind is unknown, the library lacks the model, or `out` exists.
        CheckpointError: the library could not continue from here as the recipe says.
        UnstatedError: the number of steps in an epoch is unknown.
        MissingFileError: the folder to write in does not exist.
    """
    if kind not in FAMILIES:
        raise ConfigError(f"kind = {kind!r}; expected one of {', '.join(FAMILIES)}")
    if run.lora is not None:
        raise CheckpointError(
            f"the run trains adapters (lora), which a training state of {kind} does not hold; convert"
            " the weights that the run ends with, which are a whole model"
        )
    target = plan(run, kind, like_file)
    still = f"{len(run.frozen)} tensors are frozen, which the file does not say; freeze them there"
    frozen = (still,) if run.frozen else ()
    if kind == "hf":
        return (*_write_trainer(target, Path(out), force), *frozen)
    content, notes = (_timm if kind == "timm" else _lightning)(target)
    with atomic_file(out, force=force) as file:
        _save(content, file)
    return (*notes, *frozen)


def _timm(target: LibraryFiles) -> tuple[dict[str, Any], tuple[str, ...]]:
    run, spe = target.run, target.steps_per_epoch
    done, rest = divmod(run.state.step, spe)
    if rest or not done:
        raise CheckpointError(
            f"timm resumes between epochs only, and {run.state.step} updates of {spe} an epoch are not"
            " whole ones; go on to the end of the epoch first"
        )
    args = timm.arguments_of(run.recipe) | _model_arguments(target)
    content = {
        "epoch": done - 1, "arch": args["model"], "version": 2, "args": Namespace(**args),
        "state_dict": _tensors({**target.params, **target.buffers}),
        "optimizer": _optimizer(target, target.params),
    }  # fmt: skip
    if target.ema is not None:
        content["state_dict_ema"] = _tensors({**target.ema, **target.buffers})
    known = {"sched": "its schedule", "clip_grad": "clipping", "bce_loss": "its loss", "amp": "its type"}
    notes = [f"timm has no options for {what}" for name, what in known.items() if name not in args]
    return content, tuple(notes)


def _model_arguments(target: LibraryFiles) -> dict[str, Any]:
    """Return ``args.model`` and the other options from which timm builds this model."""
    config = target.settings()["config.json"]
    given = dict(config["model_args"])
    given.setdefault("num_classes", target.run.config.num_classes)
    given.setdefault("in_chans", target.run.config.in_channels)
    options = {option: given.pop(name, None) for option, name in _ELSEWHERE.items()}
    options |= {"drop": target.run.config.dropout_head, "drop_path": target.run.config.stochastic_depth}
    return {"model": config["architecture"], **options, "model_kwargs": given}


def _lightning(target: LibraryFiles) -> tuple[dict[str, Any], tuple[str, ...]]:
    run, spe = target.run, target.steps_per_epoch
    done = run.state.step // spe
    if run.recipe.accumulate > 1:
        raise CheckpointError(
            f"accumulate = {run.recipe.accumulate}: Lightning counts batches and updates apart, and only"
            " one batch an update is written"
        )
    params = {f"model.{name}": value for name, value in target.params.items()}
    buffers = {f"model.{name}": value for name, value in target.buffers.items()}
    content: dict[str, Any] = {
        "epoch": max(done - (run.state.step % spe == 0), 0), "global_step": run.state.step,
        lightning.VERSION: lightning.WRITTEN_AS, "state_dict": _tensors(params | buffers),
        "loops": lightning.loops(run.state.step, done, spe), "callbacks": {},
        "optimizer_states": [_optimizer(target, params)], "lr_schedulers": [_scheduler(target)],
    }  # fmt: skip
    if target.dialect.family == "timm":  # so that a reader knows fields that the tensors leave open
        args = _model_arguments(target)
        content |= {"arch": args["model"], "args": args}
    notes = ["Lightning's file says nothing of the recipe but what the optimiser's groups say"]
    if target.ema is not None:
        notes.append(
            "the average of the parameters is not written: Lightning's file has no place for it"
        )
    return content, tuple(notes)


def _write_trainer(target: LibraryFiles, out: Path, force: bool) -> tuple[str, ...]:
    dialect = target.dialect
    settings = target.settings()
    if target.like is None:
        settings["config.json"]["transformers_version"] = HF_WRITTEN
    else:
        settings["config.json"]["transformers_version"] = target.like.records.version
    files = {name: json.dumps(content, indent=2) for name, content in settings.items()}
    state = _trainer_state(target)
    optimizer, scheduler = _optimizer(target, dialect.with_body(target.params)), _scheduler(target)
    tensors = {name: Stored.of(value) for name, value in {**target.params, **target.buffers}.items()}
    with atomic_folder(out, force=force) as folder:
        write_safetensors(
            folder / dialect.weights_name,
            dialect.with_body(tensors),
            metadata=dialect.header,
            sealed=False,
        )
        for name, content in (("optimizer.pt", optimizer), ("scheduler.pt", scheduler)):
            with (folder / name).open("wb") as file:
                _save(content, file)
        for name, text in {**files, trainer.STATE: json.dumps(state, indent=2)}.items():
            (folder / name).write_text(f"{text}\n", encoding="utf-8")
    notes = ["training_args.bin is not written: the script that resumes states its own"]
    if target.ema is not None:
        notes.append("the average of the parameters is not written: the Trainer keeps none")
    return tuple(notes)


def _trainer_state(target: LibraryFiles) -> dict[str, Any]:
    run, spe = target.run, target.steps_per_epoch
    return {
        "epoch": run.state.step / spe, "global_step": run.state.step,
        "max_steps": run.recipe.epochs * spe, "num_train_epochs": run.recipe.epochs,
        "train_batch_size": run.recipe.batch_size // run.recipe.accumulate,
        "logging_steps": run.recipe.log_every_steps, "eval_steps": 500, "save_steps": 500,
        "num_input_tokens_seen": 0, "total_flos": 0, "log_history": [], "best_metric": None,
        "best_global_step": None, "best_model_checkpoint": None, "is_local_process_zero": True,
        "is_world_process_zero": True, "is_hyper_param_search": False, "trial_name": None,
        "trial_params": None, "stateful_callbacks": {},
    }  # fmt: skip


def _rate(target: LibraryFiles) -> float:
    """Compute the learning rate of the next update."""
    return float(learning_rate(target.run.recipe, target.run.state.step, target.steps_per_epoch))


def _scheduler(target: LibraryFiles) -> dict[str, Any]:
    """Return the state of torch's LambdaLR at this step; its functions are the script's own."""
    step, count = target.run.state.step, len(target.groups)
    return {
        "base_lrs": [target.run.recipe.learning_rate] * count, "last_epoch": step,
        "_step_count": step + 1, "_is_initial": False, "_get_lr_called_within_step": False,
        "_last_lr": [_rate(target)] * count, "lr_lambdas": [{}] * count,
    }  # fmt: skip


def _optimizer(target: LibraryFiles, names: Iterable[str]) -> dict[str, Any]:
    """Return the state dict of torch's own optimiser with these groups and moments.

    Args:
        names: names of the parameters beside it in the file, in the target's order. The groups state
            them, as those of an optimiser of named parameters: numbers alone need not tell a reader
            which parameter is meant, and loading ignores names.
    """
    import torch

    recipe, tensors = target.run.recipe, _tensors(target.params)
    strength = decay_strength(recipe)
    variables = {name: torch.nn.Parameter(tensor) for name, tensor in tensors.items()}
    groups = [
        {"params": [variables[n] for n in part.names], "weight_decay": strength if part.decays else 0.0}
        for part in target.groups
    ]
    rate = _rate(target)
    if recipe.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            groups, lr=rate, momentum=recipe.momentum, nesterov=recipe.nesterov
        )
    else:
        make = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
        optimizer = make(groups, lr=rate, betas=(recipe.beta1, recipe.beta2), eps=recipe.adam_eps)
    moments = {moment: _tensors(each) for moment, each in target.moments.items()}
    for name, variable in variables.items():
        state = {moment: each[name] for moment, each in moments.items()}
        if recipe.optimizer != "sgd":
            state["step"] = torch.tensor(float(target.run.state.step))
        optimizer.state[variable] = state
    content, spelled = optimizer.state_dict(), dict(zip(target.params, names, strict=True))
    for group, part in zip(content["param_groups"], target.groups, strict=True):
        group["initial_lr"] = recipe.learning_rate
        group["param_names"] = [spelled[name] for name in part.names]
    return content


def _tensors(named: Named) -> dict[str, Any]:
    import torch

    return {
        name: torch.from_numpy(np.array(value, copy=True, order="C")) for name, value in named.items()
    }


def _save(content: Any, file: BinaryIO) -> None:
    import torch

    torch.save(content, file)
