"""What fixes a run's result, written beside it: a run is continued only by the same thing.

Versions of the packages that order the data and define the step belong to that; those of the packages
that compute are written down too, but a run may go on with others, no longer bit for bit the same.
"""

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
from vit_config.files.weights_file import write_atomically
from vit_config.job import Job, flatten

FILE = "run.json"
PACKAGES = ("vit-parity", "grain")
"""Packages that decide the order of the data and what a step computes: a run keeps to them."""
COMPUTING = ("jax", "jaxlib", "flax", "optax", "numpy")
"""Packages that decide how a step rounds: a run may go on with others."""
ENVIRONMENT = "environment"


class Manifest(dict[str, Any]):
    """Model, recipe, data and versions of a run, as JSON values."""

    @property
    def run_id(self) -> str:
        """SHA-256 (hex) of all that must stay as it is."""
        return hashlib.sha256(json.dumps(_fixed(self), sort_keys=True).encode()).hexdigest()

    @property
    def environment(self) -> dict[str, str]:
        """Versions of the packages that compute."""
        return self[ENVIRONMENT]


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
        environment={name: version(name) for name in COMPUTING},
    )


def _fixed(manifest: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in manifest.items() if name != ENVIRONMENT}


def claim(run_dir: Path, manifest: Manifest) -> list[str]:
    """Write the manifest into a new run folder, or see that the folder holds this very run.

    Returns:
        One phrase for each package that computes and is not of the version the run began with.

    Raises:
        CheckpointError: the folder holds another run (every changed field is named) or something
            else.
    """
    path = run_dir / FILE
    if path.is_file():
        there = _read(path)
        if changed := differences(_fixed(there), _fixed(manifest)):
            raise CheckpointError(
                f"{run_dir}: holds another run: {'; '.join(changed)}; choose another --run-dir"
            )
        began: dict[str, str] = there.get(ENVIRONMENT, {})
        return [
            f"continuing with {name} {now}, the run began with {began[name]}"
            for name, now in manifest.environment.items()
            if began.get(name, now) != now
        ]
    if (run_dir / "checkpoints").exists():
        raise CheckpointError(
            f"{run_dir}: has checkpoints but no {FILE}, so nobody knows of what; choose another"
            " --run-dir"
        )
    write_atomically(path, json.dumps(manifest, indent=1).encode())
    return []


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
