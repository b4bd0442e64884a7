"""Converts one checkpoint of a fleet."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from parity.porting.fleet.ledger import LedgerEntry
from parity.porting.fleet.lines import line_about
from parity.porting.opening.provenance import digest_of
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.writing.conversion import convert
from vit_config.errors import UnstatedError


@dataclass(frozen=True)
class Conversion:
    """One checkpoint to convert."""

    row: str
    """Name of the checkpoint in manifest and ledger."""
    path: Path
    out: Path
    to: str
    reading: dict[str, Any]
    """Arguments of `read_checkpoint`."""
    changes: dict[str, Any]
    """Arguments of `convert`."""
    verify: bool
    replace: bool
    """Whether an existing `out` may be replaced."""
    before: LedgerEntry | None
    """Ledger entry of the last conversion to this target; None if there is none."""

    @property
    def options(self) -> str:
        """Digest of all options that the output depends on; the files are not included."""
        reading = {**self.reading}
        if reading["preprocess"] is not None:
            reading["preprocess"] = reading["preprocess"].to_json()
        content = json.dumps([self.to, reading, self.changes], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class TaskOutcome:
    """What became of a conversion."""

    status: Literal["done", "unchanged", "asked", "failed"]
    seconds: float
    source: str | None = None
    """Digest of the source; only for ``done`` and ``unchanged``."""
    digest: str | None = None
    """Digest of the output."""
    error: str | None = None


@dataclass(frozen=True)
class Result:
    """The result of one checkpoint of the manifest."""

    row: str
    """Path of the checkpoint in the manifest."""
    status: Literal["done", "unchanged", "skipped", "asked", "failed"]
    """``unchanged``: an earlier run converted it; ``asked``: fields have to be stated first."""
    output: str
    seconds: float = 0.0
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the checkpoint is converted, or was to be skipped."""
        return self.status not in ("asked", "failed")


def convert_one(task: Conversion, on_start: Callable[[], object]) -> TaskOutcome:
    """Convert one checkpoint, unless nothing has changed since its last conversion; raises nothing.

    Args:
        on_start: called before anything is written.
    """
    start = time.monotonic()

    def ended(status: Any, **results: Any) -> TaskOutcome:
        return TaskOutcome(status, round(time.monotonic() - start, 3), **results)

    try:
        source = read_checkpoint(task.path, **task.reading)
        if task.before is not None and _is_unchanged(task, task.before, source):
            return ended("unchanged", source=task.before.source, digest=task.before.digest)
        on_start()
        options = {"force": task.replace, **task.changes}
        if task.verify:
            from parity.porting.verification.verified import convert_verified

            done = convert_verified(source, to=task.to, out=task.out, **options)
            result, verification = done.converted, done.verification
            if not verification.passed:
                text = f"not equal when verified: {verification.problem}; see {done.path.name}"
                return ended("failed", error=text)
        else:
            result = convert(source, to=task.to, out=task.out, **options)
        read = _with_sidecars(result.hops[-1].digest, source)
        return ended("done", source=read, digest=digest_of([task.out]))
    except UnstatedError as error:
        return ended("asked", error=line_about(task.path, error))
    except Exception as error:
        return ended("failed", error=line_about(task.path, error))


def _is_unchanged(task: Conversion, before: LedgerEntry, source: Checkpoint) -> bool:
    if before.options != task.options or (task.verify and not before.verified):
        return False
    if before.output != task.out.name or not task.out.exists():
        return False
    if digest_of([task.out]) != before.digest:
        return False
    return _with_sidecars(digest_of(source.container.files), source) == before.source


def _with_sidecars(digest: str, source: Checkpoint) -> str:
    """Compute the digest of a whole source: of its tensors' digest and the JSON files beside them."""
    sidecars = json.dumps(source.opened.sidecars.contents, sort_keys=True)
    return hashlib.sha256(f"{digest} {sidecars}".encode()).hexdigest()
