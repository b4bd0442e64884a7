"""A conversion whose result gets the name that was asked for only after it was verified."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.porting.checkpoint import Checkpoint
from parity.porting.conversion import Converted, check_out, convert
from parity.porting.verification.runs import Runs, Told, installed_twins
from parity.porting.verification.verify import Verification, sample, verify, write_verification
from vit_config.files.atomic import check_parent, put_in_place


@dataclass(frozen=True)
class Verified:
    """What was written, and what running it said."""

    converted: Converted
    verification: Verification
    path: Path
    """Where it is: the path that was asked for, or one beside it if it is not equal."""


def convert_verified(
    source: Checkpoint,
    *,
    out: str | Path,
    force: bool = False,
    runs: Runs | None = None,
    told: Told = lambda what: None,
    **options: Any,
) -> Verified:
    """Convert a checkpoint, and run source and result before the result gets its name.

    What is not equal is kept beside `out`, with ``.different`` in its name. After any exception nothing
    is left, and what was at `out` is what it was.

    Args:
        source: as `parity.porting.conversion.convert` takes it, and all other options.
        runs: see `verify`.
        told: is told, before each run, what runs.

    Raises:
        ConfigError, WeightsError, MissingFileError: see `convert` and `verify`.
    """
    installed_twins()
    out = Path(out)
    check_parent(out)
    check_out(source, out, force)
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=f".{out.name}.") as folder:
        converted = convert(source, out=Path(folder) / out.name, **options)
        verification = verify(converted, runs=runs or Runs(sample(converted.config), told))
        path = out if verification.passed else different(out)
        if converted.path.is_dir():
            write_verification(verification, converted.path)
        put_in_place(converted.path, path.absolute())
    if not path.is_dir():
        write_verification(verification, path)
    return Verified(replace(converted, path=path), verification, path)


def different(path: Path) -> Path:
    """What a result is called that is not what it should be; the suffix still tells its kind."""
    return path.with_name(f"{path.stem}.different{path.suffix}")
