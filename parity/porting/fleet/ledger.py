"""What was done, line by line, beside what was written: a run that was killed goes on from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from vit_config import ConfigError
from vit_config.base import Schema

LEDGER = "parity-ledger.jsonl"
"""The name of the file."""
LOCK = f".{LEDGER}.lock"
"""Held while a run writes."""


class Entry(Schema, frozen=True):
    """One line."""

    row: str
    """The checkpoint's path, as the manifest has it."""
    target: str
    """The dialect or family it was converted to."""
    options: str
    """Digest of everything that the manifest and the command state of the conversion."""
    status: Literal["started", "done", "failed", "asked"]
    """A line for the start, and one for the end. What failed or was asked is tried again."""
    output: str
    """The name of the file or folder, beside the ledger."""
    source: str | None = None
    """Digest of what was read."""
    digest: str | None = None
    """Digest of what was written."""
    verified: bool = False
    """Whether it was run and found equal."""
    seconds: float | None = None
    error: str | None = None


@dataclass
class Ledger:
    """The file, open for one run."""

    handle: int
    entries: list[Entry]
    """Those of earlier runs, and those of this one."""
    torn: bool
    """Whether the last line was cut off; it was taken away."""
    _done: dict[tuple[str, str], Entry] = field(default_factory=dict)
    _mine: set[tuple[str, str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for entry in self.entries:
            self._note(entry)

    def add(self, entry: Entry) -> None:
        """Append a line; it is on the disk when this returns."""
        line = json.dumps(entry.model_dump(exclude_none=True), ensure_ascii=False) + "\n"
        os.write(self.handle, line.encode())  # one call: a reader sees the whole line or none of it
        os.fsync(self.handle)
        self.entries.append(entry)
        self._note(entry)

    def done(self, row: str, target: str) -> Entry | None:
        """The last time that a checkpoint was converted to a target; None if it never was."""
        return self._done.get((row, target))

    def wrote(self, row: str, target: str, output: str) -> bool:
        """Whether what is at `output` was written - or begun - for this checkpoint and target."""
        return (row, target, output) in self._mine

    def _note(self, entry: Entry) -> None:
        self._mine.add((entry.row, entry.target, entry.output))
        if entry.status == "done":
            self._done[entry.row, entry.target] = entry


@contextmanager
def open_ledger(folder: Path) -> Iterator[Ledger]:
    """The ledger of a folder, created if there is none; nobody else can open it meanwhile.

    Raises:
        ConfigError: another run has it open, or a line in it is not one of ours.
    """
    path = folder / LEDGER
    try:
        taken = FileLock(folder / LOCK).acquire(timeout=0)
    except Timeout:
        raise ConfigError(f"{folder}: another run is writing there; wait for it to end") from None
    with taken, _opened(path) as handle:
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # its writer was stopped in the middle of a line
            os.ftruncate(handle, whole)
        lines = enumerate(content[:whole].splitlines(), 1)
        entries = [_entry(line, path, number) for number, line in lines]
        yield Ledger(handle, entries, torn=whole < len(content))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


def _entry(line: bytes, path: Path, number: int) -> Entry:
    try:
        return Entry.from_json(line.decode(), where=f"{path}: line {number}")
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(
            f"{path}: line {number} is damaged ({error}); remove the line, or give another --out"
        ) from None
