"""What `parity check --certificate` does before and after the check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from parity.cli.support.check_steps import data_folder
from parity.twins.certificate import facts
from parity.twins.certificate.files import Destination, destination, write
from parity.twins.certificate.format import Arguments as Asked
from parity.twins.certificate.format import Certificate
from parity.twins.certificate.function import of_function
from parity.twins.check import Report
from parity.twins.steps.check import StepsReport
from vit_config import ConfigError
from vit_config.job import Job

if TYPE_CHECKING:
    from parity.cli.check import Arguments


def function_certifier(
    arguments: Arguments, *, is_file: bool, wrong: Mapping[str, Any] | None
) -> Callable[[Report], int]:
    """What writes the certificate of a check of one function and gives the exit status.

    Args:
        is_file: a checkpoint is checked, not a preset.
        wrong: fields that the PyTorch twin is given another value of, on purpose.

    Raises:
        ConfigError, MissingFileError: it could not be written, see `parity.twins.certificate.files`.
    """
    where = _destination(arguments)
    batch_size = 2 if arguments.batch_size is None else arguments.batch_size

    def certify(report: Report) -> int:
        asked = _asked(arguments, batch_size=batch_size, seed=arguments.seed, wrong=wrong)
        file = facts.checkpoint_file(report.subject) if is_file else None
        return _written(of_function(report, asked, file), where)

    return certify


def training_certifier(arguments: Arguments, job: Job) -> Callable[[StepsReport], int]:
    """What writes the certificate of a check of training and gives the exit status.

    Args:
        job: what is trained.

    Raises:
        ConfigError, MissingFileError: it could not be written, see `parity.twins.certificate.files`.
        DataError: the data set cannot be read.
    """
    from parity.twins.certificate.training import of_training

    where = _destination(arguments)
    fingerprint = facts.fingerprint(job.data, data_folder(arguments.data_dir))

    def certify(report: StepsReport) -> int:
        size, seed = job.recipe.batch_size, job.recipe.seed
        asked = _asked(arguments, batch_size=size, seed=seed, wrong=None, data=job.data)
        return _written(of_training(report, asked, fingerprint), where, report)

    return certify


def _destination(arguments: Arguments) -> Destination:
    assert arguments.certificate is not None
    where = destination(arguments.certificate, force=arguments.force)
    for path in (arguments.json, arguments.svg, arguments.plot):
        if path is not None and path.absolute() in [each.absolute() for each in where.all]:
            raise ConfigError(f"{path}: is a file of the certificate; give the other one another name")
    return where


def _asked(
    arguments: Arguments,
    *,
    batch_size: int,
    seed: int,
    wrong: Mapping[str, Any] | None,
    data: str | None = None,
) -> Asked:
    config: Path | None = arguments.config
    return Asked(
        dtypes=list(dict.fromkeys(arguments.dtype)),
        precision=arguments.precision,
        batch_size=batch_size,
        seed=seed,
        fault=arguments.fault,
        wrong=None if wrong is None else dict(wrong),
        token_offset=arguments.token_offset,
        steps=arguments.steps,
        data=data,
        config=None if config is None else str(config),
    )


def _written(certificate: Certificate, where: Destination, report: StepsReport | None = None) -> int:
    """Write it and say what it says; nobody is to take it for more."""
    files = write(certificate, where, report)
    console = Console(width=None if Console().is_terminal else 110, highlight=False)
    if certificate.verdict == "NOT CERTIFIED":
        for reason in certificate.reasons:
            console.print(f"[bold yellow]not certified[/]: {escape(reason)}")
    beside = escape(", ".join(path.name for path in files[1:]))
    console.print(f"certificate: {escape(str(files[0]))} ({certificate.verdict}), beside it {beside}")
    return 0 if certificate.passed else 1
