"""What was done, line by line, beside what was written: a run that was killed goes on from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from vit_config import ConfigError
from vit_config.base import Schema
from vit_config.files.weights_file import write_atomically

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
        os.write(
            self.handle, _line(entry).encode()
        )  # one call: a reader sees the whole line or none of it
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
def open_ledger(
    folder: Path, name: str = LEDGER, others: Sequence[Path] = (), *, alone: bool = True
) -> Iterator[Ledger]:
    """The ledger of a folder, created if there is none; nobody else can open it meanwhile.

    Args:
        name: of the file.
        others: ledgers that are read as well, for what was done before.
        alone: whether nobody may be writing those others now.

    Raises:
        ConfigError: another run has it open, or a line in it is not one of ours.
    """
    path = folder / name
    with ExitStack() as stack:
        for each in (path, *(others if alone else ())):
            try:
                stack.enter_context(FileLock(folder / f".{each.name}.lock").acquire(timeout=0))
            except Timeout:
                raise ConfigError(
                    f"{folder}: another run is writing there ({each.name}); wait for it to end"
                ) from None
        handle = stack.enter_context(_opened(path))
        before = [entry for each in others for entry in _entries(each, each.read_bytes())[0]]
        content = path.read_bytes()
        entries, whole = _entries(path, content)
        if whole < len(content):  # its writer was stopped in the middle of a line
            os.ftruncate(handle, whole)
        yield Ledger(handle, [*before, *entries], torn=whole < len(content))


def write_joined(folder: Path, ledger: Ledger, others: Sequence[Path]) -> None:
    """One ledger of all lines in the place of several, which nobody may be writing."""
    lines = dict.fromkeys(_line(entry) for entry in ledger.entries)
    write_atomically(folder / LEDGER, "".join(lines).encode())
    for path in others:
        path.unlink()


def _line(entry: Entry) -> str:
    return json.dumps(entry.model_dump(exclude_none=True), ensure_ascii=False) + "\n"


def _entries(path: Path, content: bytes) -> tuple[list[Entry], int]:
    """The whole lines of a ledger, and how many bytes they are."""
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


def _entry(line: bytes, path: Path, number: int) -> Entry:
    try:
        return Entry.from_json(line.decode(), where=f"{path}: line {number}")
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(
            f"{path}: line {number} is damaged ({error}); remove the line, or give another --out"
        ) from None
