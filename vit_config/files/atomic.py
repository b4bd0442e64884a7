"""Files and folders that appear whole or not at all, and all files of a command together."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from vit_config.errors import ConfigError, MissingFileError
from vit_config.files.places import flush_folder, mend, place_all, temporary_prefix

Check = Callable[[Path], None]
"""Function that checks a written file before it gets its name, and raises to refuse it."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What writing fails with where a disk, a quota or a limit leaves no room."""
Made = dict[Path, Path | None]
"""Temporary files of a group by the paths that they are to get; None of one that is being written."""
_GROUP: ContextVar[Made | None] = ContextVar("group", default=None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Give the files of `atomic_file` within the block their names when it ends, or none of them.

    They get them in the order in which they were begun: begin the one that others read first as the
    last. Files that another thread writes are not of the group.

    Raises:
        OSError: a file cannot be written or get its name; all others are what they were before.
    """
    made: Made = {}
    token = _GROUP.set(made)
    try:
        yield
        place_all([(each, path) for path, each in made.items() if each is not None])
    finally:
        _GROUP.reset(token)
        with contextlib.ExitStack() as left:  # which goes on after an interrupt
            for each in filter(None, made.values()):  # of what was replaced, or of what failed
                left.callback(_remove, each)


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

    The file is a temporary one beside `path`, flushed to the disk before it is renamed; in a block of
    `together` it is renamed when that ends. After any exception, KeyboardInterrupt included, nothing of
    it is left and `path` is unchanged.

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
    if _GROUP.get() is not None:
        mend(path)
    _refuse_existing(path, force)
    group = _GROUP.get()
    if group is not None:
        group[path.absolute()] = None
    temporary = path.absolute().with_name(temporary_prefix(path.name) + secrets.token_hex(4))
    inside: OSError | None = None
    try:
        with temporary.open("x+b") as file:
            try:
                yield file
            except OSError as error:
                inside = None if error.errno in FULL and _is_full(file) else error
                raise
            file.flush()
            check(temporary)
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        _refuse_existing(path, force)  # it may have appeared meanwhile
        if group is None:
            place_all([(temporary, path.absolute())])
        else:
            group[path.absolute()] = temporary
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error is not inside and error.filename is None:
            error.filename = str(path)
        raise


def _remove(path: Path) -> None:
    """Remove a temporary file or folder; try twice, since a network may fail once."""
    for _ in range(2):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            return


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
    is renamed. It is exchanged with a folder that it replaces, which is removed only afterwards.

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
    mend(path)
    _refuse_existing(path, force)
    token = _GROUP.set(None)  # files within get their names there at once
    try:
        with beside(path) as temporary:
            yield temporary
            flush_all(temporary)
            os.chmod(temporary, 0o755)
            _refuse_existing(path, force)
            place_all([(temporary, path.absolute())])  # what is replaced is then the temporary one
    finally:
        _GROUP.reset(token)


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Make a temporary folder beside a path, which is removed with all that is left in it."""
    mend(path)
    path = path.absolute()
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=temporary_prefix(path.name)))
    try:
        yield folder
    finally:
        _remove(folder)


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


def flush_all(folder: Path) -> None:
    """Flush a folder with all that is in it to the disk."""
    for inside, _, names in os.walk(folder):
        for path in (Path(inside, name) for name in names):
            if not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        flush_folder(Path(inside))
