"""The place of a set: on this machine, or on object storage by fsspec (``s3://``, ``gs://``, ...).

`Remote` has the methods of `pathlib.Path` that sets need, and no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from vit_config.errors import DataError
from vit_config.files.foreign import LONGEST_JSON, check_ordinary, parse_json
from vit_config.files.held import stored_bytes

SCHEME = "://"
UNKNOWN = (-1, -1)
"""Stamp of a file whose changes cannot be seen."""
MOST_FOLDERS = 10_000
"""Most folders of a set that has fewer files than folders."""


def place(name: str) -> Place:
    """Return the place that a name in a data set's spec means.

    Raises:
        DataError: fsspec, or its package for that object storage, is not installed.
    """
    if SCHEME not in name:
        return Path(name).expanduser()
    remote = Remote(name.rstrip("/"))
    try:
        remote.system  # noqa: B018
    except (ImportError, ValueError) as error:
        scheme = name.partition(SCHEME)[0]
        raise DataError(
            f"{name}: {scheme} cannot be read ({error}); install 'vit-parity[remote]' and fsspec's"
            f" package for {scheme}, such as s3fs or gcsfs"
        ) from None
    return remote


@dataclass(frozen=True, order=True)
class Remote:
    """A file or a folder on object storage."""

    url: str
    """URL with its scheme, without a slash at the end."""

    @property
    def system(self) -> Any:
        """fsspec's file system, one per process."""
        return self._resolved()[0]

    @property
    def _path(self) -> str:
        return self._resolved()[1]

    def _resolved(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        return url_to_fs(self.url)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    def is_dir(self) -> bool:
        """Return whether something lies below this URL."""
        return self.system.isdir(self._path)

    @property
    def parent(self) -> Remote:
        """The folder that it lies in."""
        return Remote(self.url.rpartition("/")[0])

    def is_file(self) -> bool:
        """Return whether this is a file."""
        return self.system.isfile(self._path)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file for reading."""
        return self.system.open(self._path, mode)

    def size(self) -> int:
        """Return the size in bytes."""
        return int(self.system.size(self._path) or 0)

    def relative_to(self, root: Remote) -> PurePosixPath:
        """Return the path from a folder above."""
        return PurePosixPath(self.url.removeprefix(f"{root.url}/"))

    def below(self) -> list[Remote]:
        """Return every file below, in order."""
        start = len(self._path.rstrip("/")) + 1
        return sorted(self / path[start:] for path in self.system.find(self._path))


Place = Path | Remote


def is_of_a_mac(name: str) -> bool:
    """Return whether a Mac's archive adds such a file beside each file, or such a folder: no data."""
    return name.startswith("._") or name == "__MACOSX"


def files_below(folder: Place, endings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield every file below a folder with one of some endings, in any case: its folder's path from
    there, and its name; in order.

    Raises:
        DataError: there are many folders and hardly any such file: a link leads to another place.
    """
    if isinstance(folder, Remote):
        paths = (each.relative_to(folder) for each in folder.below())
        yield from sorted(
            (str(path.parent), path.name)
            for path in paths
            if path.name.lower().endswith(endings) and not any(map(is_of_a_mac, path.parts))
        )
        return
    for where, names in sorted(_walk(folder, endings)):
        inside = Path(where).relative_to(folder)
        if not any(map(is_of_a_mac, inside.parts)):
            yield from ((inside.as_posix(), name) for name in sorted(names) if not is_of_a_mac(name))


def _walk(folder: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and every folder below it, with the names of its files that have such endings.
    Links are followed, but no folder is entered twice, for links may form circles."""
    entered, count = set(), 0
    for where, folders, names in os.walk(folder, followlinks=True):
        try:
            about = os.stat(where)
        except OSError:  # it is gone
            continue
        if (known := (about.st_dev, about.st_ino)) in entered:
            folders.clear()
            continue
        entered.add(known)
        folders.sort()
        names = [name for name in names if name.lower().endswith(endings)]
        count += len(names)
        if len(entered) > MOST_FOLDERS and count < len(entered):
            raise DataError(
                f"{folder}: {len(entered)} folders with {count} files that end in {', '.join(endings)};"
                " a link leads out of the set: remove it"
            )
        yield where, names


def folders_in(folder: Place) -> list[str]:
    """Return the names of the folders in a folder, in order."""
    if not isinstance(folder, Remote):
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    else:
        items = folder.system.ls(folder._path, detail=True)
        names = [
            each["name"].rstrip("/").rpartition("/")[2] for each in items if each["type"] == "directory"
        ]
    return sorted(name for name in names if not is_of_a_mac(name))


def ending_in(folder: Place, suffix: str) -> list[Any]:
    """Return the files below a folder whose names end in `suffix`, in order."""
    files = [
        folder / name if inside == "." else folder / inside / name
        for inside, name in files_below(folder, (suffix,))
        if name.endswith(suffix)
    ]
    return sorted(files)


def resolve_below(root: Place, *names: str) -> Place:
    """Resolve the path of a file that a data set names; refuse one outside the data set's folder.

    Raises:
        OSError: the file would lie elsewhere.
    """
    file = root
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name or SCHEME in name:
            raise OSError(f"it names {name!r}, which is not below {root}")
        file = file / name
    return file


def check_here(root: Place, file: Place) -> None:
    """Check that no link leads a file out of a folder. OSError: one does."""
    if isinstance(file, Path) and not file.resolve().is_relative_to(Path(str(root)).resolve()):
        raise OSError(f"{file} is a link to what is not below {root}")


def read_all(file: Place, most: int, known: Sequence[int] = UNKNOWN) -> bytes:
    """Read the content of an ordinary file.

    Args:
        known: the `stamp_of` that the file must still have.

    Raises:
        OSError: the file cannot be read, is a device or a pipe, has more than `most` bytes, or another
            stamp.
    """
    if isinstance(file, Remote):
        content = file.system.cat_file(file._path, start=0, end=most + 1)
    else:
        with open_ordinary(file, known) as opened:
            size = os.fstat(opened.fileno()).st_size  # `read` allocates as many bytes as it is asked for
            content = opened.read(size) if size <= most else None
    if content is None or len(content) > most:
        raise OSError(f"more than {most} bytes; so many are never needed")
    return content


def read_text(file: Place) -> str:
    """Read the text of an ordinary file.

    Raises:
        OSError: see `read_all`.
        ValueError: the text is not UTF-8.
    """
    return read_all(file, LONGEST_JSON).decode()


def read_json(file: Place) -> Any:
    """Read a JSON file.

    Raises:
        OSError, ValueError: see `read_all` and `vit_config.files.foreign.parse_json`; with the path.
    """
    try:
        return parse_json(read_text(file))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def read_part(file: Place, offset: int, size: int, known: Sequence[int] = UNKNOWN) -> bytes:
    """Read some bytes of an ordinary file.

    Args:
        known: the `stamp_of` that the file must still have.

    Raises:
        OSError: the file ends before them, cannot be read, or has another stamp.
    """
    if isinstance(file, Remote):
        content = file.system.cat_file(file._path, start=offset, end=offset + size)
    else:
        with open_ordinary(file, known) as opened:
            opened.seek(offset)
            content = opened.read(max(min(size, os.fstat(opened.fileno()).st_size - offset), 0))
    if len(content) < size:
        raise OSError(f"the file ends {size - len(content)} bytes too early")
    return content


def open_ordinary(file: Place, known: Sequence[int] = UNKNOWN) -> IO[bytes]:
    """Open a file for reading. OSError: it cannot be opened, is a device or a pipe, or has another stamp
    than is `known`."""
    if isinstance(file, Remote):
        return file.open("rb")
    try:
        check_ordinary(file)
    except ValueError as error:
        raise OSError(f"{file}: {error}") from None
    opened = file.open("rb")
    about = os.fstat(opened.fileno())
    if tuple(known) not in (UNKNOWN, (about.st_size, about.st_mtime_ns)):
        opened.close()
        raise OSError("the file was changed after the fingerprint of the set was taken")
    return opened


def stamp_of(file: Place) -> tuple[int, int]:
    """Return a file's size and the time of its last change, in ns; `UNKNOWN` on object storage, or if it
    is not there."""
    try:
        about = None if isinstance(file, Remote) else os.stat(file)
    except OSError:
        about = None
    return UNKNOWN if about is None else (about.st_size, about.st_mtime_ns)


def size_of(file: Place) -> int:
    """Return a file's size in bytes; 0 if there is no such file."""
    if isinstance(file, Remote):
        return file.size()
    try:
        return file.stat().st_size
    except OSError:
        return 0


def on_disk(file: Place) -> int:
    """Return the bytes on the disk: a file with holes has fewer than its size."""
    return size_of(file) if isinstance(file, Remote) or not file.exists() else stored_bytes(file)


def changed_at(file: Place) -> float:
    """Return the time of a file's last change, in seconds; 0 where only `version_of` tells changes."""
    if isinstance(file, Remote):
        return 0.0
    try:
        about = file.stat()
    except OSError:
        return 0.0
    return max(about.st_mtime, about.st_ctime)


def version_of(file: Place) -> str:
    """Return a string that differs when a file differs: its path, size and times of change - of its
    contents, and of anything, which no program can set - or the storage's own key for it."""
    if isinstance(file, Remote):
        return f"{file.url}\0{file.system.ukey(file._path)}"
    try:
        about = file.stat()
    except OSError:
        return f"{file.absolute()}\0gone"
    facts = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return "\0".join([str(file.absolute()), *map(str, facts)])
