"""The manifest: facts that fix a run's result, written beside it; only the same facts continue it.

A run-format number stands for everything in this program that decides which batch a step gets and
what a step computes. Versions of the packages that compute are recorded too, but a run may go on
with others, no longer bit for bit the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vit_config import CheckpointError
from vit_config.files.foreign import parse_json, read_text
from vit_config.files.weights_file import write_atomically
from vit_config.job import Job, flatten
from vit_train.distilling import TeacherWeights
from vit_train.folder.start import Start

FILE = "run.json"
FORMAT = "format"
RUN_FORMAT = 1
"""Number of the run format, raised when the same recipe would give a step another batch, another
augmentation or another update than before: a run keeps its number, whichever version of this program
goes on with it."""
COMPUTING = {"jax": ("jax", "jaxlib", "flax", "optax", "numpy"), "torch": ("torch", "numpy")}
"""Packages that decide how a step of each framework rounds: a run may go on with others."""
ENVIRONMENT = "environment"
LOCK = ".lock"
LENGTH = 16
"""Characters that are shown of a long value."""
SHOWN = 3
"""Number of differing fields that are named."""
DIGESTS = {"data": "fingerprint", "init": "digest", "teacher": "digest"}
"""Facts that have a name, which only says where the user has the thing, and a digest of the thing
itself."""


class Manifest(dict[str, Any]):
    """Model, recipe, data, format and environment of a run, as JSON values."""

    @property
    def run_id(self) -> str:
        """SHA-256 (hex) of the facts that must stay the same."""
        return hashlib.sha256(json.dumps(_fixed(self), sort_keys=True).encode()).hexdigest()

    @property
    def environment(self) -> dict[str, str]:
        """Versions of the packages that compute, and on how many devices of which kind."""
        return self[ENVIRONMENT]


def make_manifest(
    job: Job,
    fingerprint: str,
    framework: str = "jax",
    start: Start | None = None,
    teacher: TeacherWeights | None = None,
    devices: Sequence[str] = (),
) -> Manifest:
    """Make the manifest of a run.

    Args:
        fingerprint: fingerprint of the data set's contents.
        framework: the framework whose packages compute.
        start: initial parameters, if they are not drawn.
        teacher: the model whose logits are learnt from, if any.
        devices: the kind of each device that computes; none if that is not known yet.
    """
    kinds = "/".join(dict.fromkeys(devices))
    on = {f"{framework} on": f"{len(devices)} {kinds}"} if devices else {}
    begun = {} if start is None else {"init": start.identity}
    return Manifest(
        model=json.loads(job.model.to_json()),
        recipe=json.loads(job.recipe.to_json()),
        data={"name": job.data, "fingerprint": fingerprint},
        **begun,
        **job.further,
        **({} if teacher is None else {"teacher": teacher.identity}),
        format=RUN_FORMAT,
        environment={name: version(name) for name in COMPUTING[framework]} | on,
    )


def _fixed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that must stay the same."""
    return {name: value for name, value in manifest.items() if name != ENVIRONMENT}


def as_begun(run_dir: Path, manifest: Manifest) -> tuple[Manifest, list[str]]:
    """Return the manifest with the names that the run in a folder began with, where the digest says that
    the thing is the same: under another spelling of its path, or moved.

    Returns:
        The manifest, and a sentence for each such name. Unchanged where the folder holds no run that can
        be read, which `claim` judges.
    """
    try:
        there = _read(run_dir / FILE)
    except (CheckpointError, OSError):
        return manifest, []
    renamed = {
        part: {**manifest[part], "name": there[part]["name"]}
        for part in names_alone_differ(there, manifest)
    }
    said = [
        f"{manifest[part]['name']}: is {each['name']}, with which this run began, by its contents"
        for part, each in renamed.items()
    ]
    return Manifest({**manifest, **renamed}), said


def names_alone_differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the parts of two manifests that have the same digest and another name."""
    return [
        part
        for part, digest in DIGESTS.items()
        if isinstance(ours := one.get(part), dict)
        and isinstance(theirs := other.get(part), dict)
        and isinstance(ours.get("name"), str)
        and ours["name"] != theirs.get("name")
        and ours.get(digest) == theirs.get(digest) is not None
    ]


def claim(run_dir: Path, manifest: Manifest) -> list[str]:
    """Write the manifest into a new run folder, or check that the folder holds this very run. One that
    ended before its first checkpoint gives way to another.

    Returns:
        One phrase for each computing package whose version differs from the run's first one, and for
        other devices.

    Raises:
        CheckpointError: the folder holds another run (the first changed fields are named) or something
            else.
    """
    path = run_dir / FILE
    if path.is_file():
        there = _read(path)
        changed = differences(_fixed(there), _fixed(manifest))
        if changed and not any((run_dir / "checkpoints").glob("*")):  # it ended before its first one
            write_atomically(path, json.dumps(manifest, indent=1).encode())
            return []
        if changed:
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
        "{} = {} there, {} here".format(name, *_shown(old.get(name), new.get(name)))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _shown(old: Any, new: Any) -> tuple[str, str]:
    """Return two values that differ as short texts that differ: where they begin alike, from a little
    before the difference on."""
    texts = json.dumps(old), json.dumps(new)
    longest = zip_longest(*texts)
    same = next((place for place, (one, other) in enumerate(longest) if one != other), 0)
    start = 0 if same < LENGTH - 3 else same - LENGTH // 2
    one, other = (_cut(text, start) for text in texts)
    return one, other


def _cut(text: str, start: int) -> str:
    if len(text) <= LENGTH + 4:
        return text
    head, tail = ('"...' if start else ""), ('..."' if len(text) > start + LENGTH else "")
    return f"{head}{text[start : start + LENGTH]}{tail}"


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
