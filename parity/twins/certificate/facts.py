"""Facts that a certificate adds to the check's own report: files, data, versions, the code itself."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from parity.measure.tolerance import FEW, FLOAT64, LIMITS, RATIO, SHADOW, STEP_LIMITS, DType
from parity.porting.checkpoint import read_checkpoint
from parity.porting.provenance import digest_of
from parity.twins.certificate.format import CheckpointFile

PACKAGES = ("vit-parity", "jaxlib", "optax", "ml-dtypes")
"""Packages that influence the numbers, beside those that every report names."""
SOURCES = ("vit_config", "vit_train", "vit_jax", "vit_torch", "parity")
"""Packages whose code a certificate identifies."""


def checkpoint_file(source: str) -> CheckpointFile:
    """Identify a checkpoint by its digest, so that another file of its name is not taken for it.

    Raises:
        MissingFileError, WeightsError, ConfigError: see `parity.porting.checkpoint.read_checkpoint`.
    """
    found = read_checkpoint(source)
    return CheckpointFile(
        path=source,
        name=found.name,
        sha256=digest_of(found.container.files),
        dialect=found.dialect.name,
    )


def fingerprint(data: str, data_dir: Path) -> str | None:
    """Return the fingerprint of a data set's contents; None for random batches.

    Raises:
        DataError, MissingFileError: the data set cannot be read, or is not there.
    """
    from parity.twins.steps.plan import RANDOM

    if data == RANDOM:
        return None
    from vit_train.data import open_dataset

    return open_dataset(data, data_dir).fingerprint


def versions(environment: dict[str, str]) -> dict[str, str]:
    """Return the versions of all packages that compute, by name."""
    found = {
        name: value
        for name, value in environment.items()
        if not name.endswith(" device") and name != "matmul precision"
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a source tree that is not installed
            continue
    return found


def devices(environment: dict[str, str]) -> dict[str, str]:
    """Return the device of each twin, and the machine around them."""
    found = {twin: environment[f"{twin} device"] for twin in ("jax", "torch")}
    return found | {"host": f"{platform.system()} {platform.machine()}"}


@cache
def sources() -> dict[str, str]:
    """Return the SHA-256 (hex) of each package's code: of the names and contents of its modules, as
    this process found them."""
    return {name: _source(Path(import_module(name).__path__[0])) for name in SOURCES}


def _source(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return found.hexdigest()


def tolerances(kind: Literal["function", "training"], dtypes: Iterable[DType]) -> dict[str, float]:
    """Return every tolerance of `parity.measure.tolerance` that a check judges by, by name."""
    found = {"float64": FLOAT64}
    if kind == "training":
        found["shadow"] = SHADOW
    for dtype in dtypes:
        limits = LIMITS if kind == "function" else STEP_LIMITS
        if dtype in limits:
            found |= {"ratio": RATIO, "few": float(FEW)}
            found |= {f"{dtype}.{level}": float(bound) for level, bound in limits[dtype].items()}
    return found
