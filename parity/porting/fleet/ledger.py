"""The ledger: a file of one line per step beside the outputs, from which a killed run continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from vit_config import ConfigError
from vit_config.base import Schema

LEDGER = "parity-ledger.jsonl"
"""Name of the ledger's file."""


class LedgerEntry(Schema, frozen=True):
    """One line of the ledger."""

    row: str
    """Path of the checkpoint in the manifest."""
    target: str
    """Dialect or family of the conversion."""
    options: str
    """Digest of the conversion's options in the manifest and the command."""
    status: Literal["started", "done", "failed", "asked"]
    """One line marks the start, one the end. A later run retries ``failed`` and ``asked``."""
    output: str
    """Name of the file or folder, beside the ledger."""
    source: str | None = None
    """Digest of the source."""
    digest: str | None = None
    """Digest of the output."""
    verified: bool = False
    """Whether the output was run and found equal."""
    seconds: float | None = None
    error: str | None = None


@dataclass
class Ledger:
    """A ledger file, open for one run."""

    handle: int
    entries: list[LedgerEntry]
    """Entries of earlier runs, and of this one."""
    torn: bool
    """Whether the last line was cut off, and removed."""
    _done: dict[tuple[str, str], LedgerEntry] = field(default_factory=dict)
    _mine: set[tuple[str, str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for entry in self.entries:
            self._note(entry)

    def add(self, entry: LedgerEntry) -> None:
        """Append a line; it is on the disk when this returns."""
        os.write(
            self.handle, _line(entry).encode()
        )  # one call: a reader sees the whole line or none of it
        os.fsync(self.handle)
        self.entries.append(entry)
        self._note(entry)

    def done(self, row: str, target: str) -> LedgerEntry | None:
        """Return the last entry of a checkpoint's conversion to a target; None if there is none."""
        return self._done.get((row, target))

    def wrote(self, row: str, target: str, output: str) -> bool:
        """Return whether `output` was written, or begun, for this checkpoint and target."""
        return (row, target, output) in self._mine

    def _note(self, entry: LedgerEntry) -> None:
        self._mine.add((entry.row, entry.target, entry.output))
        if entry.status == "done":
            self._done[entry.row, entry.target] = entry


@contextmanager
def open_ledger(folder: Path) -> Iterator[Ledger]:
    """Open the ledger of a folder, creating it if there is none; no other run can open it meanwhile.

    Raises:
        ConfigError: another run has the ledger open, or a line of it is damaged.
    """
    path = folder / LEDGER
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(folder / f".{LEDGER}.lock").acquire(timeout=0))
        except Timeout:
            raise ConfigError(
                f"{folder}: another run is writing there; wait for it to end, or give another --out"
            ) from None
        handle = stack.enter_context(_opened(path))
        content = path.read_bytes()
        entries, whole = _entries(path, content)
        if whole < len(content):  # the last run was killed in the middle of a line
            os.ftruncate(handle, whole)
        yield Ledger(handle, entries, torn=whole < len(content))


def _line(entry: LedgerEntry) -> str:
    return json.dumps(entry.model_dump(exclude_none=True), ensure_ascii=False) + "\n"


def _entries(path: Path, content: bytes) -> tuple[list[LedgerEntry], int]:
    """Return the entries of a ledger's complete lines, and the number of bytes of these lines."""
    whole = content.rfind(b"\n") + 1
    lines = enumerate(content[:whole].splitlines(), 1)
    return [_entry(line, path, number) for number, line in lines], whole


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


def _entry(line: bytes, path: Path, number: int) -> LedgerEntry:
    try:
        return LedgerEntry.from_json(line.decode(), where=f"{path}: line {number}")
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(
            f"{path}: line {number} is damaged ({error}); remove the line, or give another --out"
        ) from None
