"""``parity check PRESET --steps N``: show that the twins train alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from parity.cli.support.train_options import base_job
from parity.measure.precision import Precision
from parity.measure.tolerance import DType
from parity.twins.steps.plan import RANDOM
from vit_config import ConfigError
from vit_config.job import Job

if TYPE_CHECKING:
    from parity.twins.steps.check import StepsReport


def steps_job(
    name: str, *, config: Path | None, data: str | None, seed: int, batch_size: int | None
) -> Job:
    """What is trained: a preset with its recipe, on its data or on random batches.

    Args:
        config: a JSON file, as `parity train` takes it; what it leaves out is the preset's own.
        data: ``digits``, ``tfds:NAME`` or ``random``; by default what the file says, or digits for the
            preset of that name.

    Raises:
        ConfigError, MissingFileError: no such preset or file, or fields that are not valid.
    """
    job = base_job(name, config)
    own = job.recipe
    data = data or (job.data if config is not None or name == "digits" else RANDOM)
    size: dict[str, Any] = {} if data != RANDOM else {"batch_size": 2 * own.accumulate}
    if batch_size is not None:
        size = {"batch_size": batch_size}
    return Job(job.model, own.replace(seed=seed, **size), data)


def run(
    subject: str,
    job: Job,
    steps: int,
    *,
    data_dir: Path | None,
    dtypes: tuple[DType, ...],
    precision: Precision,
    fault: str | None,
    json: Path | None,
    plot: Path | None,
    certify: Callable[[StepsReport], int] | None = None,
) -> int:
    """Check, print, and write what was asked for; gives the exit status, `certify`'s if there is one."""
    from parity.twins.steps.check import check_steps
    from parity.twins.steps.report import draw_steps, print_steps, write_steps_json

    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        tasks = {dtype: bar.add_task(f"{dtype} steps", total=steps) for dtype in dtypes}
        report = check_steps(
            subject,
            job,
            steps,
            data_dir=data_folder(data_dir),
            dtypes=dtypes,
            precision=precision,
            fault=fault,
            progress=lambda dtype, step: bar.update(tasks[dtype], completed=step),  # pyright: ignore
        )
    print_steps(report)
    if json:
        write_steps_json(report, json)
    if plot:
        draw_steps(report, plot)
    if certify is not None:
        return certify(report)
    return 0 if report.passed else 1


def data_folder(given: Path | None) -> Path:
    """The folder of prepared data sets: the one that is given, or the usual one."""
    return (given or Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")).expanduser()


def check_picture(path: Path) -> None:
    """Refuse a name that no picture can have, before anything is trained.

    Raises:
        ConfigError: another ending than .png, .svg or .pdf.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{path}: a picture ends in .png, .svg or .pdf")
