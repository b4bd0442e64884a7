"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from vit_config.errors import ConfigError, MissingFileError

Check = Callable[[Path], None]
"""Function that checks a written file before it gets its name, and raises to refuse it."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What writing fails with where a disk, a quota or a limit leaves no room."""


def accept(path: Path) -> None:
    """Accept any file: the default check."""


def check_writable(path: Path) -> None:
    """Refuse a path that no file can be written to.

    Raises:
        MissingFileError: its folder does not exist.
        ConfigError: the path is a folder.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; give the path of a file to write")
    check_parent(path)


@contextlib.contextmanager
def atomic_file(path: str | Path, *, force: bool = False, check: Check = accept) -> Iterator[BinaryIO]:
    """Open a binary file, readable and seekable, that gets its name if the block ends without error.

    The file is a temporary one beside `path`, flushed to the disk before it is renamed. After any
    exception, KeyboardInterrupt included, nothing of it is left and `path` is unchanged.

    Args:
        force: replace a file that exists.
        check: called with the whole temporary file.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: `path` is a folder, or exists and `force` is not set.
        OSError: the file cannot be written, with `path` as its ``filename``.
    """
    path = Path(path)
    check_writable(path)
    _refuse_existing(path, force)
    handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    inside: OSError | None = None
    try:
        with os.fdopen(handle, "w+b") as file:
            try:
                yield file
            except OSError as error:
                inside = None if error.errno in FULL and _is_full(file) else error
                raise
            file.flush()
            check(Path(temporary))
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        _refuse_existing(path, force)  # it may have appeared meanwhile
        os.replace(temporary, path)
        _flush_folder(path.absolute().parent)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error is not inside and error.filename is None:
            error.filename = str(path)
        raise


def _is_full(file: BinaryIO) -> bool:
    """Return whether a file, which is to be removed, takes no more: an error of a full disk within the
    block may be of another file."""
    try:
        file.seek(0, os.SEEK_END)
        file.write(bytes(2**16))
        file.flush()
    except OSError:
        return True
    return False


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file; `path` may exist and holds either the old content or the new.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: `path` is a folder.
    """
    with atomic_file(path, force=True) as file:
        file.write(content)


@contextlib.contextmanager
def atomic_folder(path: str | Path, *, force: bool = False) -> Iterator[Path]:
    """Make an empty folder to fill, which gets its name `path` if the block ends without an exception.

    The folder is a temporary one beside `path`; all files in it are flushed to the disk before it
    is renamed. A folder that is replaced is moved aside first and removed only after the new one is
    in place.

    Args:
        force: replace a folder that exists.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: `path` is a file, or exists and `force` is not set.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: is a file; give the path of a folder to write")
    check_parent(path)
    _refuse_existing(path, force)
    whole = path.absolute()
    temporary = Path(tempfile.mkdtemp(dir=whole.parent, prefix=f".{whole.name}."))
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                _flush(Path(folder, name))
            _flush_folder(Path(folder))
        os.chmod(temporary, 0o755)
        _refuse_existing(path, force)
        put_in_place(temporary, whole)
        _flush_folder(whole.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a file or folder its name; the present holder of the name is removed only afterwards."""
    if not os.path.lexists(path):
        os.rename(temporary, path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.old."))
    try:
        os.rename(path, aside / path.name)
        os.rename(temporary, path)
    except BaseException:
        if (aside / path.name).exists() and not path.exists():
            os.rename(aside / path.name, path)
        raise
    finally:
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _refuse_existing(path: Path, force: bool) -> None:
    if os.path.lexists(path) and not force:
        raise ConfigError(
            f"{path}: already exists; give another path, or --force (force=True) to replace it"
        )


def check_spares(path: Path, read: Iterable[Path], whole: Iterable[Path] = ()) -> None:
    """Refuse to replace a file or folder that is, or holds, what is read.

    Args:
        path: the path to write.
        read: files and folders that are read; other files may be in these folders, and may be replaced.
        whole: folders of which every file is read.

    Raises:
        ConfigError: with the path that is read.
    """
    place = resolved(path)
    for each in read:
        if resolved(each) == place:
            raise ConfigError(f"{path}: is what is read; give another path")
        if resolved(each).is_relative_to(place):
            raise ConfigError(f"{path}: holds {each}, which is read; give another path")
    for each in whole:
        if place.is_relative_to(resolved(each)):
            raise ConfigError(f"{path}: is in {each}, which is read; give another path")


def resolved(path: str | Path) -> Path:
    """Return where a path leads; a link that leads to itself is its own place."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError at such a link


def check_parent(path: Path) -> None:
    """Refuse a path in a folder that does not exist. Raises MissingFileError."""
    if not path.absolute().parent.is_dir():
        raise MissingFileError(f"{path.parent}: no such folder to write {path.name} in; create it")


def _flush(path: Path) -> None:
    if path.is_symlink():
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Flush a folder: only then are the names in it on the disk."""
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
