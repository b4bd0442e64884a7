"""A part of a file that is read as a file by itself."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class FilePart:
    """A run of bytes in a file, with those of a path's methods that a reader uses."""

    def __init__(self, path: Path, begin: int, length: int):
        self.path = path
        self._begin = begin
        self._length = length

    def __str__(self) -> str:
        return f"{self.path} from byte {self._begin}"

    def stat(self) -> Any:
        """Return the size, as `Path.stat` does."""
        return SimpleNamespace(st_size=self._length)

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Open the part for reading; it begins at byte 0."""
        return io.BufferedReader(_Within(self.path.open(mode, buffering=0), self._begin, self._length))


class _Within(io.RawIOBase):
    def __init__(self, file: Any, begin: int, length: int):
        self._file, self._begin, self._length, self._at = file, begin, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._length - self._at))
        self._file.seek(self._begin + self._at)
        content = self._file.read(count)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()
