"""Reads a training state of timm, Hugging Face's Trainer or Lightning as a run that can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from parity.porting.dialects.table import Bound
from parity.porting.opening.opened import Opened, open_checkpoint
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.runs.foreign.clock import check_learning_rate, count_updates, step_of, steps_an_epoch
from parity.runs.foreign.groups import Shapes, assign_any, decay_of, hf_orders
from parity.runs.foreign.hyperparameters import say_decay, say_groups, say_undecayed
from parity.runs.foreign.lightning import is_lightning, read_lightning
from parity.runs.foreign.moments import read_arrays, read_moments, rows_of
from parity.runs.foreign.optimizer import OptimizerState, read_optimizer
from parity.runs.foreign.records import StateRecords
from parity.runs.foreign.timm import is_timm, read_timm
from parity.runs.foreign.trainer import is_trainer, read_trainer
from parity.runs.run import Run
from parity.runs.state import Arrays, TrainingState, moments_of
from vit_config import Recipe, WeightsError
from vit_config.errors import CheckpointError, UnstatedError, naming

Kind = Literal["timm", "hf", "lightning"]


def recognise(source: str | Path | Opened) -> Kind | None:
    """Return the library whose training state a file or folder is; None if it is none of these.

    Raises:
        MissingFileError: there is no such path.
        WeightsError: the file is damaged.
    """
    path = source.path if isinstance(source, Opened) else Path(source)
    if path.is_dir():
        return "hf" if is_trainer(path) else None
    opened = source if isinstance(source, Opened) else open_checkpoint(path)
    if is_lightning(opened.container):
        return "lightning"
    return "timm" if is_timm(opened.container) else None


class Training(NamedTuple):
    """An opened training state with names for all parameters; moments are not read."""

    checkpoint: Checkpoint
    records: StateRecords
    optimizer: OptimizerState
    names: dict[int, str]
    """The library's name of each parameter by the optimiser's number."""
    bound: list[Bound]


def read_foreign(
    path: str | Path,
    *,
    recipe: Recipe | None = None,
    dialect: str | None = None,
    like: str | None = None,
    given: Mapping[str, Any] | None = None,
    override: Mapping[str, Any] | None = None,
    cold: bool = False,
    part: str | None = None,
    steps_per_epoch: int | None = None,
) -> Run:
    """Read a training state: parameters, moments, average, and the recipe as far as the file states it.

    Args:
        path: timm's ``last.pth.tar``, the Trainer's folder ``checkpoint-N``, or Lightning's ``.ckpt``.
        recipe: fields that the file leaves open. Only fields that the user set (`model_fields_set`)
            count; one that contradicts the file is refused.
        dialect: see `read_checkpoint`, like `like`, `given`, `override` and `part`.
        cold: allow missing moments, which start at zero.
        steps_per_epoch: updates in an epoch, if the file does not state it.

    Raises:
        MissingFileError: there is no such path, or part of it is missing.
        WeightsError: the file is damaged, or no training state of these libraries.
        CheckpointError: moments do not fit the parameters, counts of updates disagree, no recipe can
            express an option, or `recipe` contradicts the file.
        ConfigError: no schema can express the model.
        UnstatedError: a necessary field is unknown.
    """
    path = Path(path)
    with naming(path):
        reading = {"dialect": dialect, "like": like, "override": override}
        try:
            training = open_foreign(path, given=given, part=part, **reading)
        except UnstatedError as error:
            raise _asked_at_once(error, path, recipe) from None
        checkpoint, records, optimizer, names, bound = training
        stated = records.said
        say_groups(stated, optimizer)
        say_undecayed(stated, recipe)
        step = step_of(optimizer, names, records.step)
        if step is None:
            step = count_updates(records, steps_per_epoch)
        params = read_arrays(checkpoint, checkpoint.tensors, bound)
        _say_dtype(records, params)
        say_decay(stated, _decays(training), params, recipe)
        recipe = stated.recipe(recipe, records.library)
        spe = steps_an_epoch(records, step, steps_per_epoch)
        notes = [*_notes(training), check_learning_rate(optimizer, recipe, step, spe)]
        shapes = {name: stored.shape for name, stored in checkpoint.tensors.items()}
        by_moment, missing = read_moments(optimizer, names, moments_of(recipe), shapes, cold=cold)
        moments = {moment: read_arrays(checkpoint, each, bound) for moment, each in by_moment.items()}
        if missing:
            notes.append(
                f"{len(missing)} parameters start cold, with moments of zero, at update {step}:"
                f" {', '.join(missing[:6])}{', ...' if len(missing) > 6 else ''}"
            )
        ema = _average(records, checkpoint, given=given, **reading)
    state = TrainingState(step, params, moments, ema)
    return Run(checkpoint.config, recipe, state, spe, notes=tuple(filter(None, notes)))


def _asked_at_once(error: UnstatedError, path: Path, recipe: Recipe | None) -> UnstatedError:
    """Add the fields of the recipe that are open to a question about the schema."""
    opened = open_checkpoint(path)
    records = _records(opened)
    say_groups(records.said, read_optimizer(records.optimizer))
    say_undecayed(records.said, recipe)
    matrices = {n: each for n, each in opened.container.tensors.items() if len(each.shape) > 1}
    _say_dtype(records, matrices)
    try:
        records.said.recipe(recipe, records.library)
    except UnstatedError as more:
        return UnstatedError(f"{error}; {more}", error.fields)
    return error


def open_foreign(
    path: Path,
    *,
    dialect: str | None = None,
    like: str | None = None,
    given: Mapping[str, Any] | None = None,
    override: Mapping[str, Any] | None = None,
    part: str | None = None,
) -> Training:
    """Open a training state, and match its moments with parameters.

    Raises:
        MissingFileError, WeightsError, CheckpointError, ConfigError: see `read_foreign`.
    """
    if path.is_dir() and recognise(path) is None:
        raise WeightsError(_refusal(path))  # a folder may hold no weights at all
    opened = open_checkpoint(path)
    records = _records(opened)
    checkpoint = read_checkpoint(
        opened,
        dialect=dialect,
        part=part or records.part,
        like=like,
        given=_given(records, given),
        override=override,
    )
    optimizer = read_optimizer(records.optimizer)
    bound = rows_of(checkpoint)
    names = assign_any(optimizer, _orders(checkpoint, records, bound))
    return Training(checkpoint, records, optimizer, names, bound)


def _records(opened: Opened) -> StateRecords:
    kind = recognise(opened)
    if kind is None:
        raise WeightsError(_refusal(opened.path))
    read = {"hf": read_trainer, "timm": read_timm, "lightning": read_lightning}[kind]
    return read(opened.container)


def _refusal(path: Path) -> str:
    return (
        f"{path}: no training state of vit_jax, vit_torch, timm, Hugging Face's Trainer or Lightning;"
        " weights alone go through `parity convert`"
    )


def _given(records: StateRecords, given: Mapping[str, Any] | None) -> dict[str, Any]:
    fields = dict(given or {})
    for name, value in records.given.items():
        if fields.setdefault(name, value) != value:
            raise CheckpointError(f"{name} = {value} (the file's records), but {fields[name]} was given")
    return fields


def _orders(checkpoint: Checkpoint, records: StateRecords, bound: list[Bound]) -> list[Shapes]:
    """Return the shapes of the library's parameters in each order that its model may have."""
    parameters = {name for one in bound for name in one.theirs}
    names = [name for name in checkpoint.tensors if name in parameters]
    orders = [names]
    if checkpoint.container.kind.startswith("safetensors"):
        orders = hf_orders(checkpoint.dialect.name, records.version, names)
    return [{name: checkpoint.tensors[name].shape for name in order} for order in orders]


def _decays(training: Training) -> dict[str, bool]:
    """Return whether each parameter decays, by our names; theirs that are joined in one must agree."""
    theirs = {
        training.names[index]: decay_of(group) > 0.0
        for group in training.optimizer.groups
        for index in group.indices
    }
    by_name: dict[str, bool] = {}
    for one in training.bound:
        decays = {theirs[name] for name in one.theirs}
        if len(decays) > 1:
            raise CheckpointError(
                f"{', '.join(one.theirs)} are one tensor here, and only part of it decays there"
            )
        by_name |= {name: decays == {True} for name in one.ours if name is not None}
    return by_name


def _notes(training: Training) -> list[str]:
    """Return notes on state that is not carried over, or in another type."""
    notes = [
        "the order of data and what dropout draws follow from the recipe's seed, not from the"
        f" generators of {training.records.library}"
    ]
    types = {training.checkpoint.tensors[name].dtype for one in training.bound for name in one.theirs}
    if half := sorted(str(dtype) for dtype in types if dtype.itemsize < 4):
        notes.append(f"the parameters themselves were {', '.join(half)} there; here they are float32")
    # no `found_at` notes: the parameters lie beside the moments, as expected
    return [*training.checkpoint.changed, *notes, *training.records.notes]


def _say_dtype(records: StateRecords, params: Mapping[str, Any]) -> None:
    types = {str(value.dtype) for value in params.values()}
    if types == {"float64"}:
        records.said.say("the parameters' type", dtype="float64")
    elif records.half is False:
        records.said.say(f"{records.library}, which computes in the parameters' type", dtype="float32")


def _average(
    records: StateRecords,
    checkpoint: Checkpoint,
    *,
    given: Mapping[str, Any] | None,
    **reading: Any,
) -> Arrays | None:
    """Read the average of the parameters, by its own rows; None if there is none."""
    if records.ema is None:
        return None
    every = _given(records, given)
    average = read_checkpoint(checkpoint.opened, part=records.ema, given=every, **reading)
    if average.config != checkpoint.config:
        raise CheckpointError("the average of the parameters is of another model than the parameters")
    return read_arrays(average, average.tensors, rows_of(average))
