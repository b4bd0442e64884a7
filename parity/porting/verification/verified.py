"""Conversion with verification: the result gets its final name only if it is equal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.verification.runs import LogitsCache, installed_twins
from parity.porting.verification.verify import Verification, sample, verify, write_verification
from parity.porting.writing.conversion import Converted, check_out, convert
from vit_config.files.atomic import beside, check_parent
from vit_config.files.places import place_all
from vit_config.waiting import Stage, nobody


@dataclass(frozen=True)
class Verified:
    """A conversion's result with its verification."""

    converted: Converted
    verification: Verification
    path: Path
    """Path of the result: the requested one, or one beside it if the result is not equal."""


def convert_verified(
    source: Checkpoint,
    *,
    out: str | Path,
    force: bool = False,
    runs: LogitsCache | None = None,
    on_stage: Stage = nobody,
    **options: Any,
) -> Verified:
    """Convert a checkpoint, and run source and result before the result gets its name.

    A result that is not equal is kept beside `out`, with ``.different`` in its name. An exception leaves
    no result, and `out` as it was.

    Args:
        source: as `parity.porting.writing.conversion.convert` takes it, like all other options.
        runs: see `verify`.
        on_stage: called before each run with its description, and how many seconds it and all others are
            expected to take.

    Raises:
        ConfigError, WeightsError, MissingFileError: see `convert` and `verify`.
    """
    installed_twins()
    out = Path(out)
    check_parent(out)
    check_out(source, out, force)
    with beside(out) as folder:
        converted = convert(source, out=folder / out.name, **options)
        verification = verify(converted, runs=runs or LogitsCache(sample(converted.config), on_stage))
        path = out if verification.passed else different(out)
        report = write_verification(verification, converted.path)
        made = [(converted.path, path.absolute())]
        if converted.path.is_file():
            name = report.name.replace(converted.path.name, path.name, 1)
            made.insert(0, (report, path.absolute().with_name(name)))
        place_all(made)
    return Verified(replace(converted, path=path), verification, path)


def different(path: Path) -> Path:
    """Return the path for a result that is not equal, with the same suffix."""
    return path.with_name(f"{path.stem}.different{path.suffix}")
