"""Reader of the records in timm's ``last.pth.tar``."""

from __future__ import annotations

from typing import Any

from parity.porting.formats import Container
from parity.runs.foreign.entries import Entries
from parity.runs.foreign.records import StateRecords
from parity.runs.foreign.statements import Statements
from vit_config.errors import CheckpointError

WHO = "timm's args"
OPTIMIZERS = {"adamw": "adamw", "adam": "adam", "sgd": "sgd", "nesterov": "sgd", "momentum": "sgd"}
SCHEDULES = {"cosine": "cosine", "step": "step", "constant": "constant", "none": "constant"}
NEUTRAL: dict[str, Any] = {
    "clip_mode": "norm", "lr_cycle_mul": 1.0, "lr_cycle_limit": 1, "lr_k_decay": 1.0, "lr_noise": None,
    "bce_pos_weight": None, "jsd_loss": False, "kd_model_name": None, "layer_decay": None,
}  # fmt: skip
"""Options that a recipe cannot express, or that leave it open which parameters are in which group
(``layer_decay``), with the values at which they have no effect."""
AUGMENT: dict[str, Any] = {
    "aa": None, "aug_repeats": 0, "aug_splits": 0, "color_jitter": None, "cutmix": 0.0,
    "cutmix_minmax": None, "hflip": 0.0, "mixup": 0.0, "ratio": None, "reprob": 0.0, "scale": None,
    "vflip": 0.0, "train_crop_mode": None,
}  # fmt: skip
"""Options of augmentation, which are not carried over, with the values at which they have no effect."""


def is_timm(container: Container) -> bool:
    """Return whether a file was written by ``timm.utils.CheckpointSaver``."""
    objects = container.objects
    return "epoch" in objects and "arch" in objects and "optimizer.param_groups.0.lr" in objects


def read_timm(container: Container) -> StateRecords:
    """Read the records of a timm checkpoint.

    Raises:
        CheckpointError: no recipe can express an option; the message names it.
    """
    entries, stated = Entries.of(container), Statements()
    args = entries.under("args")
    averaged = any(name.startswith("state_dict_ema.") for name in container.tensors)
    done = entries.get("epoch") + (1 if entries.get("version", 1) > 1 else 0)
    notes = []
    if entries.under("amp_scaler"):
        notes.append("the scale of the loss for half precision (amp_scaler) is not carried")
    if args:
        _say_arguments(stated, args)
        if changed := _not_neutral(args, AUGMENT):
            notes.append(f"timm's changes to training images are not carried: {changed}")
    if averaged and stated.get("ema", 0) is None:
        raise CheckpointError(f"model_ema is off in {WHO}, but the file holds an average")
    if not averaged:
        stated.say("the file, which holds no average", ema=None)
    fields = {"drop": "dropout_head", "drop_path": "stochastic_depth"}
    return StateRecords(
        library="timm",
        optimizer=entries.under("optimizer"),
        said=stated,
        half=args.get("amp") if args.get("model_dtype") in (None, "float32") else True,
        epochs_done=None if container.path.name.startswith("recovery") else done,
        given={
            ours: float(args.get(name)) for name, ours in fields.items() if args.get(name) is not None
        },
        part="state_dict" if averaged else None,
        ema="state_dict_ema" if averaged else None,
        notes=tuple(notes),
    )


def _say_arguments(stated: Statements, args: Entries) -> None:
    if strange := _not_neutral(args, NEUTRAL):
        raise CheckpointError(f"{strange} in {WHO}, which no recipe can express")
    if (name := args.get("opt")) is not None:
        if name not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise CheckpointError(
                f"opt = {name} in {WHO}, which no recipe can express; expected one of {known}"
            )
        stated.say(WHO, optimizer=OPTIMIZERS[name])
    if args.get("lr") is not None:
        stated.say(WHO, learning_rate=float(args.get("lr")))
    if args.get("seed") is not None:
        stated.say(WHO, seed=args.get("seed"))
    parts = args.get("grad_accum_steps") or 1
    if args.get("batch_size") is not None and args.get("world_size") is not None:
        whole = args.get("batch_size") * args.get("world_size") * parts
        stated.say(WHO, batch_size=whole, accumulate=parts)
    if "clip_grad" in args:
        clip = args.get("clip_grad")
        stated.say(WHO, clip_norm=None if clip is None else float(clip))
        stated.say(WHO, **({} if clip is None else {"clip_eps": 1e-6}))
    if args.get("smoothing") is not None and args.get("bce_loss") is not None:
        smoothing = float(args.get("smoothing"))
        mixed = args.get("mixup") or args.get("cutmix") or args.get("cutmix_minmax")
        # without smoothing and mixing, timm's script uses the softmax loss even if bce_loss is set
        sigmoid = args.get("bce_loss") and (smoothing or mixed)
        kind = ("sigmoid" if args.get("bce_sum") else "sigmoid_mean") if sigmoid else "softmax"
        stated.say(WHO, label_smoothing=smoothing, loss=kind)
        if sigmoid and args.get("bce_target_thresh") is not None:
            stated.say(WHO, label_threshold=float(args.get("bce_target_thresh")))
    if args.get("model_ema") is not None:
        stated.say(WHO, ema=float(args.get("model_ema_decay")) if args.get("model_ema") else None)
        if args.get("model_ema") and args.get("model_ema_warmup"):
            stated.say(WHO, ema_warmup=True)
    if args.get("sched") is not None and args.get("epochs") is not None:
        stated.say(WHO, **_schedule(args))


def _schedule(args: Entries) -> dict[str, Any]:
    """Return the recipe's fields for timm's scheduler.

    The warm-up starts at ``warmup_lr`` and replaces the schedule's beginning, unless it is a prefix.
    Defaults are those of ``timm.scheduler.scheduler_kwargs``.
    """
    name, epochs = args.get("sched"), args.get("epochs")
    if name not in SCHEDULES:
        raise CheckpointError(
            f"sched = {name} in {WHO}, which no recipe can express; expected one of"
            f" {', '.join(SCHEDULES)}"
        )
    if name == "cosine" and args.get("cooldown_epochs"):
        raise CheckpointError(
            f"cooldown_epochs = {args.get('cooldown_epochs')} in {WHO}, which no recipe can express"
        )
    warmup = 0.0 if name == "none" else float(args.get("warmup_epochs", 5))
    prefix = bool(args.get("warmup_prefix", False))
    fields: dict[str, Any] = {"schedule": SCHEDULES[name], "warmup_epochs": warmup}
    fields["epochs"] = epochs + (int(warmup) if prefix and warmup else 0)
    fields["schedule_unit"] = "step" if args.get("sched_on_updates") else "epoch"
    if warmup:
        fields |= {"warmup_start": float(args.get("warmup_lr", 1e-5)), "warmup_overlaps": not prefix}
    if name == "cosine":
        fields["final_learning_rate"] = float(args.get("min_lr", 0.0))
    if name == "step":
        fields["step_epochs"] = float(args.get("decay_epochs", 30))
        fields["step_factor"] = float(args.get("decay_rate", 0.1))
    return fields


def _not_neutral(args: Entries, neutral: dict[str, Any]) -> str:
    changed = {name: args.get(name, value) for name, value in neutral.items()}
    odd = {name: value for name, value in changed.items() if value and value != neutral[name]}
    return ", ".join(f"{name} = {value}" for name, value in odd.items())
