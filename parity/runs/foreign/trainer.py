"""Reader of checkpoint folders of Hugging Face's Trainer: ``checkpoint-N/``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from parity.porting.formats import Container
from parity.runs.foreign.entries import Entries
from parity.runs.foreign.records import StateRecords
from parity.runs.foreign.statements import Statements
from vit_config.errors import CheckpointError, MissingFileError

WHO = "training_args.bin"
STATE, OPTIMIZER, ARGUMENTS = "trainer_state.json", "optimizer.pt", "training_args.bin"
OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "sgd": "sgd",
}  # fmt: skip
SCHEDULES = {
    "linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant",
}  # fmt: skip
LEFT = {
    "rng_state.pth": "the states of random generators (rng_state.pth)",
    "scaler.pt": "the scale of the loss for half precision (scaler.pt)",
}
"""Files whose contents are not carried over, in words."""


def is_trainer(path: Path) -> bool:
    """Return whether a folder is one of the Trainer's checkpoints."""
    return path.is_dir() and (path / STATE).is_file()


def read_trainer(container: Container) -> StateRecords:
    """Read the records of a Trainer's checkpoint folder.

    Raises:
        MissingFileError: the folder has no optimizer.pt.
        CheckpointError: no recipe can express an option; the message names it.
    """
    path = container.path
    if not (path / OPTIMIZER).is_file():
        raise MissingFileError(
            f"{path}: no {OPTIMIZER}, only weights; save without save_only_model, in one process"
        )
    state, config = container.sidecars[STATE], container.sidecars.get("config.json", {})
    stated, args = Statements(), Entries.load(path / ARGUMENTS)
    stated.say("the Trainer, which keeps no average", ema=None)
    spe = _steps_per_epoch(state)
    if args:
        _say_arguments(stated, args, state)
        _say_schedule(stated, args, state, spe)
    if (kind := config.get("problem_type")) not in (None, "single_label_classification"):
        raise CheckpointError(
            f"problem_type = {kind} in config.json; only single_label_classification is carried on"
        )
    stated.say("the Trainer", loss="softmax")
    notes = [f"{what} are not carried" for name, what in LEFT.items() if (path / name).is_file()]
    return StateRecords(
        library="the Trainer",
        optimizer=Entries.load(path / OPTIMIZER),
        said=stated,
        half=bool(args.get("bf16") or args.get("fp16")) if args else None,
        step=state.get("global_step"),
        steps_per_epoch=spe,
        version=config.get("transformers_version"),
        notes=tuple(notes),
    )


def _steps_per_epoch(state: dict[str, Any]) -> int | None:
    """Return updates done divided by epochs done, if that is a whole number, else None."""
    step, epoch = state.get("global_step"), state.get("epoch")
    if not step or not epoch:
        return None
    steps = round(step / epoch)
    return steps if math.isclose(steps * epoch, step, rel_tol=1e-6) else None


def _say_arguments(stated: Statements, args: Entries, state: dict[str, Any]) -> None:
    name = args.get("optim")
    if name not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise CheckpointError(
            f"optim = {name} in {WHO}, which no recipe can express; expected one of {known}"
        )
    stated.say(WHO, optimizer=OPTIMIZERS[name], learning_rate=float(args.get("learning_rate")))
    stated.say(
        WHO, seed=args.get("seed"), label_smoothing=float(args.get("label_smoothing_factor", 0.0))
    )
    clip = args.get("max_grad_norm")
    stated.say(WHO, **({"clip_norm": float(clip), "clip_eps": 1e-6} if clip else {"clip_norm": None}))
    parts, processes = args.get("gradient_accumulation_steps"), _processes(args)
    each = state.get("train_batch_size")
    if processes is not None and each is not None:
        stated.say(WHO, batch_size=each * processes * parts, accumulate=parts)


def _processes(args: Entries) -> int | None:
    """Return the number of training processes, as accelerate records it; None if unknown."""
    count = args.get("distributed_state.num_processes")
    return count if isinstance(count, int) else None


def _say_schedule(stated: Statements, args: Entries, state: dict[str, Any], spe: int | None) -> None:
    """State the schedule: a warm-up from zero to the peak, then decay over the remaining steps."""
    name, total = args.get("lr_scheduler_type"), state.get("max_steps")
    if name not in SCHEDULES or args.under("lr_scheduler_kwargs"):
        known = ", ".join(SCHEDULES)
        raise CheckpointError(
            f"lr_scheduler_type = {name} in {WHO}, which no recipe can express; expected one of"
            f" {known}, without lr_scheduler_kwargs"
        )
    if spe is None or not total:
        return  # fields that count in epochs stay open
    if total % spe:
        raise CheckpointError(
            f"max_steps = {total} in {STATE} are not whole epochs of {spe} steps, which a recipe cannot"
            " say"
        )
    warmup = 0 if name == "constant" else _warmup_steps(args, total)
    stated.say(WHO, schedule=SCHEDULES[name], schedule_unit="step", epochs=total // spe)
    stated.say(WHO, warmup_epochs=warmup / spe)
    if warmup:
        stated.say(WHO, warmup_start=0.0, warmup_overlaps=False)
    if name in ("linear", "cosine"):
        stated.say(WHO, final_learning_rate=0.0, reach_final=False)


def _warmup_steps(args: Entries, total: int) -> int:
    """Return the warm-up's steps; since version 5 the same option may hold a share of all steps."""
    steps, share = args.get("warmup_steps") or 0, args.get("warmup_ratio") or 0.0
    return int(steps) if steps >= 1 else math.ceil(total * (share or steps))
