"""``parity check-steps``: show that the twins train alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.cli.support.checking import Checking
from parity.cli.support.command_line import parse
from parity.cli.support.reading import DATA_DIR, data_folder, shown_as
from parity.measure.tolerance import DEFAULT_DTYPES
from vit_config import ConfigError
from vit_config.files.atomic import together

if TYPE_CHECKING:
    from vit_config.job import Job


DATA = "that of --config; without one random, but digits for the preset digits"
"""Data set that is taken if none is given, in words."""


@dataclass(frozen=True)
class CheckSteps(Checking):
    """Train both twins of a preset on the same batches, from the preset's own initial values, and
    compare: every step from the same state, and the whole run beside its shadows. Exit status: 0 equal,
    1 different or uncertified, 2 bad input.
    """

    preset: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("PRESET")] = ()
    """Preset to train."""
    steps: Annotated[int, shown_as("N", "20")] = 20
    """Number of steps."""
    batch_size: Annotated[int | None, shown_as("N", "the recipe's; 2 for random without --config")] = (
        None
    )
    """Images in a batch."""
    seed: int = 0
    """Seed of the run."""
    config: Annotated[Path | None, shown_as("FILE")] = None
    """JSON or TOML file {"recipe": {...}, "model": {...}, "data": SET}, as `parity train` takes it;
    the preset gives what it leaves out."""
    data: Annotated[str | None, shown_as("SET", DATA)] = None
    """Data set, as `parity train` takes it; or random, for random batches."""
    data_dir: Annotated[Path | None, DATA_DIR] = None
    """Folder of prepared data sets."""
    plot: Annotated[Path | None, shown_as("FILE")] = None
    """Also draw the curves of twins and shadows, as .png, .svg or .pdf."""


def main(argv: list[str], prog: str = "parity check-steps") -> int:
    """Run the command, which the user calls `prog`."""
    arguments = parse(CheckSteps, argv, prog=prog)

    from parity.porting.opening.hub import is_path
    from vit_config import PRESETS

    if len(arguments.preset) != 1:
        raise ConfigError(f"expected one preset, got {len(arguments.preset)}; {prog} --help explains")
    (subject,) = arguments.preset
    arguments.refuse(seed=arguments.seed, batch_size=arguments.batch_size)
    if subject not in PRESETS and is_path(subject):
        raise ConfigError(
            f"{subject} is a checkpoint, but {prog} trains a preset from its initial values; give a"
            " preset"
        )
    if arguments.plot and arguments.plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{arguments.plot}: a picture ends in .png, .svg or .pdf")
    return _run(arguments, subject, _job(arguments, subject))


def _job(arguments: CheckSteps, name: str) -> Job:
    """Make the job of a preset: its recipe, on its data or on random batches."""
    from parity.cli.support.job_file import base_job
    from parity.twins.steps.plan import RANDOM
    from vit_config.job import Job

    job = base_job(name, arguments.config)
    own = arguments.config is not None or name == "digits"
    data = arguments.data or (job.data if own else RANDOM)
    size = arguments.batch_size
    if size is None:
        small = data == RANDOM and arguments.config is None
        size = 2 * job.recipe.accumulate if small else job.recipe.batch_size
    return Job(job.model, job.recipe.replace(seed=arguments.seed, batch_size=size), data)


def _run(arguments: CheckSteps, subject: str, job: Job) -> int:
    from rich.progress import Progress

    from parity.measure.shown import write_json
    from parity.twins.steps.check_steps import check_steps
    from parity.twins.steps.steps_report import draw_steps, print_steps, steps_to_dict
    from vit_config.screen import screen

    data_dir, dtypes = data_folder(arguments.data_dir), arguments.dtype or DEFAULT_DTYPES
    errors = screen(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        tasks = {dtype: bar.add_task(f"{dtype} steps", total=arguments.steps) for dtype in dtypes}
        report = check_steps(
            subject,
            job,
            arguments.steps,
            data_dir=data_dir,
            dtypes=dtypes,
            precision=arguments.precision,
            device=arguments.device,
            fault=arguments.fault,
            progress=lambda dtype, step: bar.update(tasks[dtype], completed=step),  # pyright: ignore
        )
    with together():
        if arguments.plot:
            draw_steps(report, arguments.plot)
        if arguments.json:
            write_json(arguments.json, steps_to_dict(report))
    print_steps(report)
    return 0 if report.passed else 1
