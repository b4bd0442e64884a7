"""``parity convert-run``: carry a training run from one framework, or library, to another."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from parity.command_line import parse
from parity.commands.reading import Reading, shown_as
from parity.runs.folder import NAMES, framework_of, read_manifest, read_run, write_run
from parity.runs.run import Run
from vit_config import ConfigError, Recipe, WeightsError
from vit_config.errors import MissingFileError, UnstatedError
from vit_config.job import Job
from vit_jax.train.manifest import Manifest


@dataclass(frozen=True)
class Arguments:
    """Carry a training run over: parameters, moments, step, schedule position, average, data position,
    random numbers and recipe, exactly. What is written is read again and compared. Exit status: 0, or 2
    for bad input, with nothing written.
    """

    source: Annotated[Path, tyro.conf.Positional, shown_as("RUN")]
    """The folder of a run of `parity train`; or timm's last.pth.tar, a checkpoint-N folder of Hugging
    Face's Trainer, or a Lightning .ckpt."""
    out: Annotated[Path, tyro.conf.Positional, shown_as("OUT")]
    """What to write: a folder; for timm and lightning a file."""
    to: Annotated[
        Literal["jax", "torch", "timm", "hf", "lightning"],
        tyro.conf.arg(metavar="{jax,torch,timm,hf,lightning}"),
    ]
    """Whose run it shall be: that of the JAX or the PyTorch trainer here, of timm's training script, of
    Hugging Face's Trainer, or of Lightning."""
    reading: tyro.conf.OmitArgPrefixes[Reading]
    """What a file does not say itself."""
    step: Annotated[int | None, shown_as("N", "the newest that is whole")] = None
    """Which checkpoint of the run."""
    recipe: Annotated[Path | None, shown_as("FILE")] = None
    """A JSON file of recipe fields, for what another library's file leaves open; what contradicts the
    file is refused."""
    data: Annotated[str | None, shown_as("SET")] = None
    """The data set that another library's run goes on with: digits or tfds:NAME."""
    data_dir: Annotated[Path | None, shown_as("DIR", "$TFDS_DATA_DIR or ~/tensorflow_datasets")] = None
    """Folder of prepared data sets."""
    steps_per_epoch: Annotated[int | None, shown_as("N")] = None
    """Updates in an epoch, where neither the file nor a data set says."""
    like_file: Annotated[Path | None, shown_as("FILE")] = None
    """A training state of the same model that the other library wrote: its groups are followed."""
    cold: tyro.conf.FlagCreatePairsOff[bool] = False
    """Let parameters whose moments are missing start with zeros, which is else refused."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is at OUT."""


def main(argv: list[str], prog: str = "parity convert-run") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(Arguments, argv, prog=prog)
    source = arguments.source
    if not source.exists():
        raise MissingFileError(f"{source}: no such file or folder; give a training run")
    if arguments.out.exists() and not arguments.force:
        raise ConfigError(f"{arguments.out}: exists already; give another path, or --force")
    own = framework_of(source) if source.is_dir() else None
    run = _read_own(arguments) if own else _read_foreign(arguments)
    notes = [*run.notes]
    if arguments.to in NAMES:
        if own:
            manifest = read_manifest(source)
        else:
            run, manifest = _settle(arguments, run)
        write_run(
            run, arguments.out, arguments.to, manifest, log=source if own else None,
            force=arguments.force,
        )  # fmt: skip
    else:
        from parity.runs.foreign import write_foreign

        if run.steps_per_epoch is None:
            run = replace(run, steps_per_epoch=_steps_per_epoch(arguments, run))
        notes += write_foreign(
            run, arguments.out, arguments.to, like_file=arguments.like_file, force=arguments.force
        )
    _say(arguments, run, notes)
    return 0


def _read_own(arguments: Arguments) -> Run:
    given = {
        "--recipe": arguments.recipe,
        "--data": arguments.data,
        "--steps-per-epoch": arguments.steps_per_epoch,
    }
    if extra := [flag for flag, value in given.items() if value is not None]:
        raise ConfigError(
            f"{', '.join(extra)}: the run in {arguments.source} says that itself; leave it out"
        )
    return read_run(arguments.source, arguments.step, cold=arguments.cold)


def _read_foreign(arguments: Arguments) -> Run:
    from parity.runs.foreign import read_foreign, recognise

    if arguments.step is not None:
        raise ConfigError(f"--step {arguments.step}: goes with a run folder only")
    if recognise(arguments.source) is None:
        raise WeightsError(
            f"{arguments.source}: no training state of vit_jax, vit_torch, timm, Hugging Face's Trainer"
            " or Lightning; weights alone go through `parity convert`"
        )
    recipe = None if arguments.recipe is None else Recipe.load(arguments.recipe)
    stated: Any = arguments.reading
    options = {
        name: value
        for name, value in stated.options().items()
        if name in ("dialect", "like", "given", "part")
    }
    return read_foreign(
        arguments.source,
        recipe=recipe,
        **options,
        cold=arguments.cold,
        steps_per_epoch=arguments.steps_per_epoch,
    )


def _settle(arguments: Arguments, run: Run) -> tuple[Run, Manifest]:
    """Another library's run on a data set here: the description of the run that it becomes."""
    from vit_jax.train.conduct import make_task
    from vit_jax.train.manifest import make_manifest

    name = arguments.data or run.data
    if name is None:
        raise UnstatedError(
            f"{arguments.source} does not say what it was trained on; give --data, such as tfds:NAME"
        )
    task = make_task(Job(run.config, run.recipe, name), _data_dir(arguments))
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
    manifest = make_manifest(task.job, task.dataset.fingerprint)
    fingerprint = task.dataset.fingerprint
    settled = replace(run, steps_per_epoch=task.steps_per_epoch, data=name, fingerprint=fingerprint)
    return settled, manifest


def _steps_per_epoch(arguments: Arguments, run: Run) -> int | None:
    if run.data is None:
        return None
    from vit_jax.train.conduct import make_task

    return make_task(Job(run.config, run.recipe, run.data), _data_dir(arguments)).steps_per_epoch


def _data_dir(arguments: Arguments) -> Path:
    folder = arguments.data_dir or Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    return folder.expanduser().absolute()


def _say(arguments: Arguments, run: Run, notes: list[str]) -> None:
    state, out = run.state, arguments.out
    parts = {name: len(arrays) for name, arrays in state.parts().items()}
    print(f"{arguments.source} -> {out}: {state.step} updates done")
    print("  " + ", ".join(f"{count} tensors of {name}" for name, count in parts.items()))
    for note in notes:
        print(f"  {note}")
    if arguments.to in NAMES:
        framework = "" if arguments.to == "jax" else " --framework torch"
        print(
            f"  the next is update {state.step + 1}, on the batch that follows; to go on:\n"
            f"  parity train{framework} --config {out / 'run.json'} --run-dir {out}"
        )
