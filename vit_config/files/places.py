"""How what was written under a temporary name gets its place: at once, together with others, or not."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vit_config.terminal import complain

_LONGEST = 240
"""Bytes of a name that are part of a temporary one, which may have 255."""
_HERE, _EXCHANGE = -100, 2
"""Linux's AT_FDCWD and RENAME_EXCHANGE."""
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""What exchanging fails with on a file system that does not know it."""
_OLD = "old."


def shortened(name: str) -> str:
    """Return the part of a name that temporary names begin with."""
    while len(os.fsencode(name)) > _LONGEST:
        name = name[:-1]
    return name


def temporary_prefix(name: str) -> str:
    """Return how the temporary name of a file or folder begins; eight more characters end it."""
    return f".{shortened(name)}."


def place_all(made: Sequence[tuple[Path, Path]]) -> None:
    """Give written files and folders their names, in order: all of them, or none.

    What had a name before has the temporary one afterwards, but for a file that is replaced alone. A
    process that is killed between two of these calls of the system leaves some files old; the last is
    then old, too.

    Args:
        made: temporary path and final path of each, both absolute and in one folder or beside.

    Raises:
        OSError: one cannot get its name, with the final path as its ``filename``.
    """
    done: list[tuple[Path, Path, bool]] = []
    try:
        for temporary, path in made:
            there = os.path.lexists(path)
            alone = len(made) == 1 and not temporary.is_dir() and not path.is_dir()
            try:
                if alone or not there:
                    os.replace(temporary, path)
                else:
                    _exchange(temporary, path)
            except OSError as error:
                raise OSError(error.errno, error.strerror or str(error), str(path)) from None
            done.append((temporary, path, there))
    except BaseException:
        for temporary, path, there in reversed(done):
            with contextlib.suppress(OSError):  # the first error is told
                _exchange(temporary, path) if there else os.replace(path, temporary)
        raise
    for folder in {path.parent for _, path in made}:
        flush_folder(folder)


def mend(path: Path) -> None:
    """Give a name back to what an earlier call moved aside, if it was ended before it put anything in
    its place; say so."""
    if os.path.lexists(path):
        return
    path = path.absolute()
    begins = f"{temporary_prefix(path.name)}{_OLD}"
    beside = os.listdir(path.parent)
    for aside in (path.parent / name for name in beside if name.startswith(begins)):
        with contextlib.suppress(OSError):
            os.rename(aside / path.name, path)
            os.rmdir(aside)
            complain(f"{path}: a command was ended while it replaced this; what it was is back")
            return


def _exchange(temporary: Path, path: Path) -> None:
    """Exchange the names of two files or folders in one step, or, where the file system cannot, in two;
    `mend` knows what to do if the process ends between them."""
    if _exchanged(temporary, path):
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{temporary_prefix(path.name)}{_OLD}"))
    try:
        os.rename(path, aside / path.name)
        try:
            os.rename(temporary, path)
        except BaseException:
            os.rename(aside / path.name, path)
            raise
        os.rename(aside / path.name, temporary)
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(aside)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step. Returns whether the system can."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE)) == 0:
        return True
    if (code := ctypes.get_errno()) in _CANNOT:
        return False
    raise OSError(code, os.strerror(code))


def flush_folder(folder: Path) -> None:
    """Flush a folder: only then are the names in it on the disk."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
