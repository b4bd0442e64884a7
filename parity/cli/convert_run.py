"""``parity convert-run``: move a training run to the other framework."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.cli.support.command_line import parse
from parity.cli.support.reading import shown_as
from parity.cli.support.run_weights import runs_here
from vit_config import ConfigError, MissingFileError
from vit_config.files.atomic import check_spares
from vit_config.terminal import say

if TYPE_CHECKING:
    from parity.runs.run import Run


@dataclass(frozen=True)
class ConvertRun:
    """Move a training run to the other framework: parameters, moments, step, schedule position,
    average, data position, random numbers and recipe, exactly. The result is read again and compared.
    Exit status: 0, or 2 for bad input, with nothing written.
    """

    source: Annotated[Path, tyro.conf.Positional, shown_as("RUN")]
    """Folder of a run of `parity train`."""
    out: Annotated[Path, tyro.conf.Positional, shown_as("OUT")]
    """Folder to write."""
    to: Annotated[str, tyro.conf.arg(metavar="{jax,torch}")]
    """Trainer here that shall continue the run."""
    step: Annotated[int | None, shown_as("N", "the newest that is whole")] = None
    """Step of the training run's checkpoint."""
    cold: tyro.conf.FlagCreatePairsOff[bool] = False
    """Start missing moments at zero; without it, they are refused."""
    force: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing OUT."""


def main(argv: list[str], prog: str = "parity convert-run") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(ConvertRun, runs_here(argv), prog=prog)

    from parity.runs.folder import NAMES, check_out, read_manifest, read_run, write_run
    from vit_config.waiting import Waiting

    source, out = arguments.source, arguments.out
    if not source.exists():
        raise MissingFileError(f"{source}: no such file or folder; give a training run")
    if arguments.to not in NAMES:
        raise ConfigError(_elsewhere(arguments))
    _refuse_other(source)
    check_out(out, source, force=arguments.force)
    check_spares(out, (), [source])
    with Waiting(f"reading {source}", 1, 2) as waiting:  # what is written is read again
        run = read_run(source, arguments.step, cold=arguments.cold)
        waiting.now(f"writing {out}", 2)
        notes = write_run(
            run, out, arguments.to, read_manifest(source), log=source, force=arguments.force
        )
    _say(arguments, run, [*run.notes, *notes])
    return 0


def _elsewhere(arguments: ConvertRun) -> str:
    """Return why a run is not moved to another library, and the command that moves its weights."""
    step = [] if arguments.step is None else ["--step", str(arguments.step)]
    argv = [str(arguments.source), str(arguments.out), "--to", arguments.to, *step]
    return (
        f"--to {arguments.to}: a run goes on in jax or torch only; elsewhere continue from the weights:"
        f" parity convert {shlex.join(argv)}"
    )


def _refuse_other(source: Path) -> None:
    """Refuse what is no run's folder: a part of one, and another library's training state.

    Raises:
        ConfigError: it is a part of a run, which is named.
        MissingFileError: it is no run.
    """
    from parity.runs.folder import CHECKPOINTS, MANIFEST

    place = source.absolute()
    for inner, run in ((place, place.parent), (place.parent, place.parent.parent)):
        if inner.name == CHECKPOINTS and (run / MANIFEST).is_file():
            step = f" and --step {place.stem}" if place.stem.isdecimal() else ""
            raise ConfigError(f"{source}: is part of a training run; give the run's folder, {run}{step}")
    if not (source / MANIFEST).is_file():
        raise MissingFileError(
            f"{source}: is no run of `parity train`, whose folder has a {MANIFEST}; another"
            f" library's goes on from its weights: parity train --init {source}"
        )


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
    say(
        f"  the next is update {state.step + 1}, on the batch that follows; to go on:",
        f"  parity train {shlex.join([*framework, *where])}",
    )
