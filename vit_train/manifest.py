"""The manifest: facts that fix a run's result, written beside it; only the same facts continue it.

A run-format number stands for everything in this program that decides which batch a step gets and
what a step computes. Versions of the packages that compute are recorded too, but a run may go on
with others, no longer bit for bit the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vit_config import CheckpointError
from vit_config.files.foreign import parse_json, read_text
from vit_config.files.weights_file import write_atomically
from vit_config.job import Job, flatten
from vit_train.distilling import TeacherWeights
from vit_train.start import Start

FILE = "run.json"
FORMAT = "format"
RUN_FORMAT = 1
"""Number of the run format, raised when the same recipe would give a step another batch, another
augmentation or another update than before: a run keeps its number, whichever version of this program
goes on with it."""
VERSIONS = "versions"
"""The key that old runs have instead of a format: versions of packages."""
COMPUTING = {"jax": ("jax", "jaxlib", "flax", "optax", "numpy"), "torch": ("torch", "numpy")}
"""Packages that decide how a step of each framework rounds: a run may go on with others."""
OPEN = {"eval_crop": 1.0}
"""Values in runs from before a field of the recipe could be left open, as it then is now."""
ENVIRONMENT = "environment"
LOCK = ".lock"
SHOWN = 3
"""Number of differing fields that are named."""


class Manifest(dict[str, Any]):
    """Model, recipe, data, format and environment of a run, as JSON values."""

    @property
    def run_id(self) -> str:
        """SHA-256 (hex) of the facts that must stay the same."""
        return hashlib.sha256(json.dumps(_fixed(self), sort_keys=True).encode()).hexdigest()

    @property
    def environment(self) -> dict[str, str]:
        """Versions of the packages that compute."""
        return self[ENVIRONMENT]


def make_manifest(
    job: Job,
    fingerprint: str,
    framework: str = "jax",
    start: Start | None = None,
    teacher: TeacherWeights | None = None,
) -> Manifest:
    """Make the manifest of a run.

    Args:
        fingerprint: fingerprint of the data set's contents.
        framework: the framework whose packages compute.
        start: initial parameters, if they are not drawn.
        teacher: the model whose logits are learnt from, if any.
    """
    begun = {} if start is None else {"init": start.identity}
    return Manifest(
        model=json.loads(job.model.to_json()),
        recipe=json.loads(job.recipe.to_json()),
        data={"name": job.data, "fingerprint": fingerprint},
        **begun,
        **job.further,
        **({} if teacher is None else {"teacher": teacher.identity}),
        format=RUN_FORMAT,
        environment={name: version(name) for name in COMPUTING[framework]},
    )


def _fixed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that must stay the same."""
    fixed = {name: value for name, value in manifest.items() if name != ENVIRONMENT}
    if FORMAT in fixed and isinstance(recipe := fixed.get("recipe"), dict):
        fixed["recipe"] = {**OPEN, **recipe}
    return fixed


def claim(run_dir: Path, manifest: Manifest) -> list[str]:
    """Write the manifest into a new run folder, or check that the folder holds this very run.

    Returns:
        One phrase for each computing package whose version differs from the run's first one.

    Raises:
        CheckpointError: the folder holds another run (the first changed fields are named) or something
            else.
    """
    path = run_dir / FILE
    if path.is_file():
        there = _read(path)
        if VERSIONS in there and FORMAT not in there:
            raise CheckpointError(
                f"{run_dir}: was begun before runs had a format number; `parity convert-run {run_dir}"
                " NEW --to FRAMEWORK` writes a folder that goes on, bit for bit"
            )
        if changed := differences(_fixed(there), _fixed(manifest)):
            more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            raise CheckpointError(
                f"{run_dir}: holds another run: {'; '.join(changed[:SHOWN])}{more}; choose another"
                " --run-dir"
            )
        began: dict[str, str] = there.get(ENVIRONMENT, {})
        return [
            f"continuing with {name} {now}, the run began with {began[name]}"
            for name, now in manifest.environment.items()
            if began.get(name, now) != now
        ]
    if (run_dir / "checkpoints").exists():
        raise CheckpointError(
            f"{run_dir}: has checkpoints but no {FILE} to say of what run; choose another --run-dir"
        )
    write_atomically(path, json.dumps(manifest, indent=1).encode())
    return []


def _read(path: Path) -> dict[str, Any]:
    try:
        there = parse_json(read_text(path))
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged ({error}); choose another --run-dir") from None
    if not isinstance(there, dict):
        raise CheckpointError(f"{path}: is not the description of a run; choose another --run-dir")
    return there


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Return one phrase for each value that differs, named by its dotted path."""
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
        lock = FileLock(run_dir / LOCK).acquire(timeout=0)
    except Timeout:
        raise CheckpointError(
            f"{run_dir}: another process is training in this folder; wait for it to end,"
            " or choose another --run-dir"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{run_dir}: cannot be written ({error.strerror}); choose another --run-dir"
        ) from None
    with lock:
        yield
