"""Files that must stay what they are while a checkpoint is read: from its header to its last tensor.

Each tensor is read when it is needed, and a download or a training run may replace the file meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path, PosixPath, WindowsPath
from typing import IO, Any

from vit_config.errors import WeightsError

_Path = WindowsPath if sys.platform == "win32" else PosixPath  # Python 3.11 subclasses no `Path`
Identity = tuple[object, ...]


class Lasting(_Path):
    """The path of a file, or of a folder of files, that is as it was when `lasting` made this.

    Opening a file that is another one, or was written since, raises WeightsError.
    """

    identity: Identity | None = None
    """None of a path that was derived from another."""

    def open(self, *args: Any, **kwargs: Any) -> IO[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Open the file, as `Path.open` does. WeightsError: it is no longer the same."""
        file = super().open(*args, **kwargs)
        if self.identity not in (None, _identity_of(os.fstat(file.fileno()))):
            file.close()
            raise self._changed()
        return file

    def check(self) -> None:
        """Refuse a file or folder that is no longer the same. WeightsError: it is not."""
        try:
            same = self.identity in (None, _identity(self))
        except OSError:  # it is gone
            same = False
        if not same:
            raise self._changed()

    def _changed(self) -> WeightsError:
        return WeightsError(f"{self}: changed while it was read; wait until it is whole")


def lasting(path: Path) -> Lasting:
    """Return the path of a file or folder that must stay as it is now. OSError: it cannot be read."""
    made = Lasting(path)
    made.identity = path.identity if isinstance(path, Lasting) else _identity(path)
    return made


def check_lasting(paths: Iterable[Path]) -> None:
    """Refuse files of which one is no longer as it was when it was opened. WeightsError: names it."""
    for path in paths:
        if isinstance(path, Lasting):
            path.check()


def _identity(path: Path) -> Identity:
    if not path.is_dir():
        return _identity_of(path.stat())
    files = sorted(each for each in Path(path).rglob("*") if each.is_file())
    return tuple((str(each), _identity_of(each.stat())) for each in files)


def _identity_of(about: os.stat_result) -> Identity:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
