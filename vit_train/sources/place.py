"""Where a set lies: on this machine, or on object storage by fsspec (``s3://``, ``gs://``, ...).

`Remote` has what sets ask of a `pathlib.Path`, and no more.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from vit_config.errors import DataError

SCHEME = "://"


def place(name: str) -> Place:
    """What a name in a data set's spec means.

    Raises:
        DataError: object storage that fsspec, or what it needs, is not installed for.
    """
    if SCHEME not in name:
        return Path(name).expanduser()
    found = Remote(name.rstrip("/"))
    try:
        found.system  # noqa: B018
    except (ImportError, ValueError) as error:
        scheme = name.partition(SCHEME)[0]
        raise DataError(
            f"{name}: {scheme} cannot be read ({error}); install 'vit-parity[remote]' and fsspec's"
            f" package for {scheme}, such as s3fs or gcsfs"
        ) from None
    return found


@dataclass(frozen=True, order=True)
class Remote:
    """A file or a folder on object storage."""

    url: str
    """With its scheme, and without a slash at the end."""

    @property
    def system(self) -> Any:
        """fsspec's file system, of which it keeps one a process."""
        return self._found()[0]

    @property
    def _path(self) -> str:
        return self._found()[1]

    def _found(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        return url_to_fs(self.url)

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    def is_dir(self) -> bool:
        """Whether something lies below it."""
        return self.system.isdir(self._path)

    def is_file(self) -> bool:
        """Whether it is a file."""
        return self.system.isfile(self._path)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open it for reading."""
        return self.system.open(self._path, mode)

    def read_bytes(self) -> bytes:
        """All of it."""
        return self.system.cat_file(self._path)

    def read_text(self) -> str:
        """All of it, as UTF-8."""
        return self.read_bytes().decode()

    def relative_to(self, root: Remote) -> PurePosixPath:
        """The path from a folder above."""
        return PurePosixPath(self.url.removeprefix(f"{root.url}/"))

    def below(self) -> list[Remote]:
        """Every file below, in order."""
        start = len(self._path.rstrip("/")) + 1
        return sorted(self / path[start:] for path in self.system.find(self._path))


Place = Path | Remote


def is_of_a_mac(name: str) -> bool:
    """Whether this is what a Mac's archive holds beside each file, or the folder of such: no data."""
    return name.startswith("._") or name == "__MACOSX"


def files_below(folder: Place) -> Iterator[tuple[str, str]]:
    """Every file below a folder: the path of its own folder from there, and its name; in order."""
    if isinstance(folder, Remote):
        paths = (each.relative_to(folder) for each in folder.below())
        yield from sorted(
            (str(path.parent), path.name) for path in paths if not any(map(is_of_a_mac, path.parts))
        )
        return
    for where, _, names in sorted(os.walk(folder, followlinks=True)):
        inside = Path(where).relative_to(folder)
        if not any(map(is_of_a_mac, inside.parts)):
            yield from ((inside.as_posix(), name) for name in sorted(names) if not is_of_a_mac(name))


def folders_in(folder: Place) -> list[str]:
    """The names of the folders in a folder, in order."""
    if not isinstance(folder, Remote):
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    else:
        found = folder.system.ls(folder._path, detail=True)
        names = [
            each["name"].rstrip("/").rpartition("/")[2] for each in found if each["type"] == "directory"
        ]
    return sorted(name for name in names if not is_of_a_mac(name))


def ending_in(folder: Place, suffix: str) -> list[Any]:
    """The files below a folder whose names end so, in order."""
    found: list[Any] = (
        folder.below() if isinstance(folder, Remote) else sorted(folder.rglob(f"*{suffix}"))
    )
    return [
        each
        for each in found
        if each.name.endswith(suffix) and not any(map(is_of_a_mac, each.relative_to(folder).parts))
    ]


def read_part(file: Place, offset: int, size: int) -> bytes:
    """Some bytes of a file, fewer where it ends."""
    if isinstance(file, Remote):
        return file.system.cat_file(file._path, start=offset, end=offset + size)
    with file.open("rb") as opened:
        opened.seek(offset, io.SEEK_SET)
        return opened.read(size)


def version_of(file: Place) -> str:
    """What is another string when a file is another one: its path, size and time of change, or what the
    storage knows it by."""
    if isinstance(file, Remote):
        return f"{file.url}\0{file.system.ukey(file._path)}"
    about = file.stat()
    return f"{file.absolute()}\0{about.st_size}\0{about.st_mtime_ns}"
