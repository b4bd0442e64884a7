"""``parity convert-run``: move a training run to the other framework."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.kept import refuse_replacing_inputs
from parity.cli.support.reading import DATA_DIR, ReadingFlags, data_folder, shown_as
from parity.cli.support.run_weights import runs_here
from vit_config import ConfigError
from vit_config.errors import MissingFileError, UnstatedError
from vit_config.files.atomic import check_spares
from vit_config.terminal import say

if TYPE_CHECKING:
    from parity.runs.run import Run
    from vit_train.folder.manifest import Manifest
    from vit_train.task import Task


@dataclass(frozen=True)
class ConvertRun:
    """Move a training run to the other framework: parameters, moments, step, schedule position,
    average, data position, random numbers and recipe, exactly. The result is read again and compared.
    Exit status: 0, or 2 for bad input, with nothing written.
    """

    source: Annotated[Path, tyro.conf.Positional, shown_as("RUN")]
    """Folder of a run of `parity train`; or timm's last.pth.tar, a checkpoint-N folder of Hugging
    Face's Trainer, or a Lightning .ckpt."""
    out: Annotated[Path, tyro.conf.Positional, shown_as("OUT")]
    """Folder to write."""
    to: Annotated[str, tyro.conf.arg(metavar="{jax,torch}")]
    """Trainer here that shall continue the run."""
    reading: tyro.conf.OmitArgPrefixes[ReadingFlags]
    """Facts that the file leaves open."""
    step: Annotated[int | None, shown_as("N", "the newest that is whole")] = None
    """Step of the training run's checkpoint."""
    recipe: Annotated[Path | None, shown_as("FILE")] = None
    """JSON or TOML file of recipe fields that another library's file leaves open; a value that
    contradicts the file is refused."""
    data: Annotated[str | None, shown_as("SET")] = None
    """Data set that another library's run goes on with, as `parity train` takes it."""
    data_dir: Annotated[Path | None, DATA_DIR] = None
    """Folder of prepared data sets."""
    steps_per_epoch: Annotated[int | None, shown_as("N")] = None
    """Updates in an epoch, where neither the file nor a data set says it."""
    cold: tyro.conf.FlagCreatePairsOff[bool] = False
    """Start missing moments at zero; without it, they are refused."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing OUT."""


NO_DATA = "it does not say what it was trained on; give --data, such as tfds:NAME"


def main(argv: list[str], prog: str = "parity convert-run") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(ConvertRun, runs_here(argv), prog=prog)

    from parity.runs.folder import NAMES, check_out, framework_of, read_manifest, write_run
    from vit_config.waiting import Waiting

    source, out = arguments.source, arguments.out
    if not source.exists():
        raise MissingFileError(f"{source}: no such file or folder; give a training run")
    own = framework_of(source) if source.is_dir() else None
    if arguments.to not in NAMES:
        raise ConfigError(_elsewhere(arguments))
    check_out(out, source, force=arguments.force)
    refuse_replacing_inputs(out, arguments, source)
    if source.is_dir():
        check_spares(out, (), [source])
    with Waiting(f"reading {source}", 1, 2) as waiting:  # what is written is read again
        run = _read_own(arguments) if own else _read_foreign(arguments)
        notes = [*run.notes]
        waiting.now(f"writing {out}", 2)
        if own:
            manifest = read_manifest(source)
        else:
            run, manifest = _settle(arguments, run)
        log = source if own else None
        notes += write_run(run, out, arguments.to, manifest, log=log, force=arguments.force)
    _say(arguments, run, notes)
    return 0


def _elsewhere(arguments: ConvertRun) -> str:
    """Return why a run is not moved to another library, and the command that moves its weights."""
    step = [] if arguments.step is None else ["--step", str(arguments.step)]
    to = {"lightning": "timm"}.get(arguments.to, arguments.to)
    argv = [str(arguments.source), str(arguments.out), "--to", to, *step]
    return (
        f"--to {arguments.to}: a run goes on in jax or torch only; elsewhere continue from the weights:"
        f" parity convert {shlex.join(argv)}"
    )


def _read_own(arguments: ConvertRun) -> Run:
    from parity.runs.folder import read_run

    why = f"the run in {arguments.source} says that itself"
    _refuse(arguments, ("recipe", "data", "steps_per_epoch"), why)
    _refuse(arguments.reading, tuple(each.name for each in fields(ReadingFlags)), why)
    return read_run(arguments.source, arguments.step, cold=arguments.cold)


def _refuse(options: Any, names: tuple[str, ...], why: str) -> None:
    """Refuse flags that would do nothing."""
    given = [name for name in names if getattr(options, name) not in (None, ())]
    if given:
        flags = ", ".join("--" + {"fields": "set"}.get(name, name.replace("_", "-")) for name in given)
        raise ConfigError(f"{flags}: {why}; leave it out")


def _read_foreign(arguments: ConvertRun) -> Run:
    from parity.runs.foreign import read_foreign
    from vit_config import Recipe

    if arguments.step is not None:
        raise ConfigError(f"--step {arguments.step}: goes with a run folder only")
    _refuse(arguments.reading, ("preprocess", "license", "adapter"), "a training state has none")
    _refuse_part(arguments.source)
    recipe = None if arguments.recipe is None else Recipe.load(arguments.recipe)
    stated: Any = arguments.reading
    options = {
        name: value
        for name, value in stated.options().items()
        if name in ("dialect", "like", "given", "override", "part")
    }
    try:
        return read_foreign(
            arguments.source,
            recipe=recipe,
            **options,
            cold=arguments.cold,
            steps_per_epoch=arguments.steps_per_epoch,
        )
    except UnstatedError as error:
        if arguments.data is not None:
            raise
        raise UnstatedError(f"{error}; {NO_DATA}", error.fields) from None  # asked next otherwise


def _refuse_part(source: Path) -> None:
    """Refuse a part of a run's folder, and name the run."""
    from parity.runs.folder import CHECKPOINTS, MANIFEST

    place = source.absolute()
    for inner, run in ((place, place.parent), (place.parent, place.parent.parent)):
        if inner.name == CHECKPOINTS and (run / MANIFEST).is_file():
            step = f" and --step {place.stem}" if place.stem.isdecimal() else ""
            raise ConfigError(f"{source}: is part of a training run; give the run's folder, {run}{step}")
    if (source / CHECKPOINTS).is_dir():
        raise MissingFileError(f"{source}: no {MANIFEST} in it; give the folder of a training run")


def _settle(arguments: ConvertRun, run: Run) -> tuple[Run, Manifest]:
    """Return another library's run on a data set here, and the manifest of the run it becomes."""
    from vit_train.folder.manifest import make_manifest

    name = arguments.data or run.data
    if name is None:
        raise UnstatedError(f"{arguments.source}: {NO_DATA}")
    task = _task(arguments, run, name)
    if run.steps_per_epoch not in (None, task.steps_per_epoch):
        raise ConfigError(
            f"{arguments.source} has {run.steps_per_epoch} updates in an epoch, {name} in batches of"
            f" {run.recipe.batch_size} makes {task.steps_per_epoch}; give the batch size that fits"
        )
    if run.state.step > task.total_steps:
        raise ConfigError(
            f"{arguments.source} has done {run.state.step} updates, the recipe ends after"
            f" {task.total_steps}; raise epochs"
        )
    manifest = make_manifest(task.job, task.dataset.fingerprint, arguments.to)
    fingerprint = task.dataset.fingerprint
    settled = replace(run, steps_per_epoch=task.steps_per_epoch, data=name, fingerprint=fingerprint)
    return settled, manifest


def _task(arguments: ConvertRun, run: Run, name: str) -> Task:
    """Open the data set of a run. DataError: the model, which cannot be another one, is not for it."""
    from vit_config.job import Job
    from vit_train.batches.data import open_dataset
    from vit_train.batches.fit import fit_dataset
    from vit_train.task import make_task

    folder = data_folder(arguments.data_dir)
    fit_dataset(run.config, open_dataset(name, folder), trained=True)
    return make_task(Job(run.config, run.recipe, name), folder)


def _say(arguments: ConvertRun, run: Run, notes: list[str]) -> None:
    from parity.runs.folder import MANIFEST

    state, out = run.state, arguments.out
    parts = {name: len(arrays) for name, arrays in state.parts().items()}
    say(f"{arguments.source} -> {out}: {state.step} updates done")
    say("  " + ", ".join(f"{count} tensors of {name}" for name, count in parts.items()))
    for note in notes:
        say(f"  {note}")
    framework = [] if arguments.to == "jax" else ["--framework", arguments.to]
    where = ["--config", str(out / MANIFEST), "--run-dir", str(out)]
    data = [] if arguments.data_dir is None else ["--data-dir", str(arguments.data_dir)]
    say(
        f"  the next is update {state.step + 1}, on the batch that follows; to go on:",
        f"  parity train {shlex.join([*framework, *where, *data])}",
    )
