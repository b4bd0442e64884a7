"""What fixes a run's result, written beside it: a run is continued only by the same thing."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vit_config import CheckpointError
from vit_config.job import Job, flatten
from vit_config.weights_file import write_atomically

FILE = "run.json"
PACKAGES = ("vit-parity", "grain")
"""Packages that decide the order of the data and what a step computes."""


class Manifest(dict[str, Any]):
    """Model, recipe, data and versions of a run, as JSON values."""

    @property
    def run_id(self) -> str:
        """SHA-256 (hex) of the whole content."""
        return hashlib.sha256(json.dumps(self, sort_keys=True).encode()).hexdigest()


def make_manifest(job: Job, fingerprint: str) -> Manifest:
    """The manifest of a run.

    Args:
        fingerprint: of the contents of the data set.
    """
    return Manifest(
        model=json.loads(job.model.to_json()),
        recipe=json.loads(job.recipe.to_json()),
        data={"name": job.data, "fingerprint": fingerprint},
        versions={name: version(name) for name in PACKAGES},
    )


def claim(run_dir: Path, manifest: Manifest) -> None:
    """Write the manifest into a new run folder, or see that the folder holds this very run.

    Raises:
        CheckpointError: the folder holds another run (every changed field is named) or something
            else.
    """
    path = run_dir / FILE
    if path.is_file():
        there = _read(path)
        if changed := differences(there, manifest):
            raise CheckpointError(
                f"{run_dir}: holds another run: {'; '.join(changed)}; choose another --run-dir"
            )
        return
    if (run_dir / "checkpoints").exists():
        raise CheckpointError(
            f"{run_dir}: has checkpoints but no {FILE}, so nobody knows of what; choose another"
            " --run-dir"
        )
    write_atomically(path, json.dumps(manifest, indent=1).encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        there = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged ({error}); choose another --run-dir") from None
    if not isinstance(there, dict):
        raise CheckpointError(f"{path}: is not the description of a run; choose another --run-dir")
    return there


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """One phrase for each value that differs, named by its dotted path."""
    old, new = flatten(there), flatten(here)
    return [
        f"{name} = {_show(old.get(name))} there, {_show(new.get(name))} here"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 20 else text[:16] + '..."'


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Keep other processes out of a run folder, which is created when missing.

    Raises:
        CheckpointError: another process trains there, or the folder cannot be made.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = (run_dir / ".lock").open("w")
    except OSError as error:
        raise CheckpointError(
            f"{run_dir}: cannot be written ({error.strerror}); choose another --run-dir"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"{run_dir}: another process is training there; wait for it, or choose another --run-dir"
            ) from None
        yield
