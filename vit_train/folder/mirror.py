"""Run folders on object storage, by fsspec: a run works in a local folder, which is copied there.

Object storage has no rename, no append and no flush, so a checkpoint counts there only once all its
files have arrived, which an object written last records: ``checkpoints/STEP.complete``, with the
size of each. When a run begins, its local folder is made equal to the storage, unless the folder
holds a later step of the same run, whose last checkpoint could not be sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vit_config import CheckpointError, ConfigError
from vit_config.errors import first_line
from vit_train.folder.manifest import FILE as MANIFEST
from vit_train.folder.manifest import locked
from vit_train.sources.place import Remote, place

EVERY = 5.0
"""Seconds between two copies while a run goes on."""
CHECKPOINTS = "checkpoints"
COMPLETE = ".complete"
_CHECKPOINT = re.compile(r"\d+(\.pt)?")
"""Names of finished checkpoints: folders of JAX, files of PyTorch."""


def working_folder(url: str) -> Path:
    """Return the local folder of a run on object storage: ``$XDG_CACHE_HOME/vit-parity/runs/DIGEST``
    (``~/.cache`` by default)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache, "vit-parity", "runs", hashlib.sha256(url.encode()).hexdigest()[:16]).absolute()


@dataclass
class Mirror:
    """A run folder on object storage and the local folder that it is copied from.

    Args:
        url: URL with its scheme, such as ``s3://BUCKET/RUN``.
        folder: folder on this machine.
    """

    url: str
    folder: Path
    _sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of change of each file that was sent, by its path in the folder."""
    _complete: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """The complete checkpoints on the storage, with the files of each."""
    _left: set[str] = field(default_factory=set)
    """Files on the storage of checkpoints that never were complete."""

    @property
    def lock(self) -> Path:
        """The lock of a run that works in the folder."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    @contextmanager
    def synchronised(self) -> Iterator[None]:
        """Fetch the complete files of the storage; send changes for the duration, and at its end.

        Raises:
            CheckpointError: another process works in the folder, or the storage cannot be read or, in
                the end, written.
        """
        with locked(self.lock):
            self.fetch()
            over = threading.Event()

            def send_on() -> None:
                while not over.wait(EVERY):
                    with suppress(CheckpointError):  # the next round tries again
                        self.send()

            thread = threading.Thread(target=send_on, name="mirror", daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()
                self.send()

    def fetch(self) -> None:
        """Make the local folder equal to the storage, incomplete checkpoints left out.

        Raises:
            CheckpointError: the storage cannot be read.
        """
        with self._explained("read"):
            system, root = self._system()
            if hasattr(system, "invalidate_cache"):
                system.invalidate_cache()
            entries = system.find(root, detail=True) if system.exists(root) else {}
            sizes = {path[len(root) + 1 :]: about["size"] for path, about in entries.items()}
            whole = dict(self._whole(system, root, sizes))
            self._sent, self._complete = {}, whole
            self._left = {name for name in sizes if name.startswith(f"{CHECKPOINTS}/")}.difference(
                (f"{CHECKPOINTS}/{entry}{COMPLETE}" for entry in whole), *whole.values()
            )
            if self._is_further(system, root, whole, sizes):
                return
            names = {name for name in sizes if not name.startswith(f"{CHECKPOINTS}/")}
            names.update(*whole.values())
            for path in _files(self.folder):
                name = path.relative_to(self.folder).as_posix()
                in_checkpoint = name.startswith(f"{CHECKPOINTS}/")  # checkpoints never change
                if name not in names or not in_checkpoint or path.stat().st_size != sizes[name]:
                    path.unlink()
            for name in sorted(names):
                path = self.folder / name
                if not path.is_file():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    system.get_file(f"{root}/{name}", str(path))
                self._sent[name] = _version(path)
            for entry in self._entries():
                if entry.name not in whole:
                    shutil.rmtree(entry)  # only empty folders are left in it

    def send(self) -> None:
        """Copy changed files; delete checkpoints on the storage that are no longer here.

        Raises:
            CheckpointError: the storage cannot be written.
        """
        with self._explained("written"):
            system, root = self._system()
            finished = {entry.name: entry for entry in self._entries()}
            _delete(system, root, self._left)
            self._left = set()
            # the log first: it has no less than the checkpoints that were finished before it is read
            for path in _files(self.folder):
                name = path.relative_to(self.folder).as_posix()
                if not name.startswith(f"{CHECKPOINTS}/"):
                    self._put(system, root, path, name)
            for name in sorted(finished.keys() - self._complete.keys(), key=_step):
                self._put_checkpoint(system, root, finished[name])
            newest = max(self._complete, key=_step, default=None)  # stays, even if it is gone here
            for name in self._complete.keys() - finished.keys() - {newest}:
                # the first deletion invalidates the checkpoint
                _delete(system, root, [f"{CHECKPOINTS}/{name}{COMPLETE}", *self._complete[name]])
                del self._complete[name]

    def _put(self, system: Any, root: str, path: Path, name: str) -> None:
        with suppress(FileNotFoundError):  # a temporary file that has got its name
            version = _version(path)
            if self._sent.get(name) != version:
                system.pipe_file(f"{root}/{name}", path.read_bytes())
                self._sent[name] = version

    def _put_checkpoint(self, system: Any, root: str, entry: Path) -> None:
        """Send a checkpoint by hard links: it arrives whole even if the run deletes it meanwhile."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".sending.") as linked:
            here = Path(linked, entry.name)
            try:
                if entry.is_file():
                    os.link(entry, here)
                else:
                    shutil.copytree(entry, here, copy_function=os.link)
            except (FileNotFoundError, shutil.Error):
                if entry.exists():
                    raise
                return  # a newer one has taken its place
            files = [here] if here.is_file() else sorted(p for p in here.rglob("*") if p.is_file())
            sizes = {}
            for path in files:
                name = f"{CHECKPOINTS}/{path.relative_to(linked).as_posix()}"
                sizes[name] = path.stat().st_size
                system.put_file(str(path), f"{root}/{name}")
        system.pipe_file(
            f"{root}/{CHECKPOINTS}/{entry.name}{COMPLETE}", json.dumps({"files": sizes}).encode()
        )
        self._complete[entry.name] = sizes

    def _is_further(
        self, system: Any, root: str, whole: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> bool:
        """Return whether the folder has a later step of the same run."""
        here = self.folder / MANIFEST
        if not here.is_file():
            return False
        if MANIFEST in sizes and system.cat_file(f"{root}/{MANIFEST}") != here.read_bytes():
            return False
        steps = [
            max(map(_step, names), default=-1)
            for names in ((entry.name for entry in self._entries()), whole)
        ]
        return steps[0] > steps[1]

    def _whole(
        self, system: Any, root: str, sizes: Mapping[str, int]
    ) -> Iterator[tuple[str, Mapping[str, int]]]:
        """Yield the checkpoints whose files are all on the storage, and the files' sizes."""
        for name in sizes:
            entry = name.removeprefix(f"{CHECKPOINTS}/").removesuffix(COMPLETE)
            if name == f"{CHECKPOINTS}/{entry}{COMPLETE}":
                files = json.loads(system.cat_file(f"{root}/{name}"))["files"]
                if all(sizes.get(file) == size for file, size in files.items()):
                    yield entry, files

    def _entries(self) -> list[Path]:
        """Return the finished checkpoints in the folder."""
        paths = (self.folder / CHECKPOINTS).glob("*")
        return sorted(path for path in paths if _CHECKPOINT.fullmatch(path.name))

    def _system(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        system, root = url_to_fs(self.url)
        return system, root.rstrip("/")

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # the storage's package raises errors of its own kinds
            reason = first_line(error)
            raise CheckpointError(
                f"{self.url}: cannot be {what} ({reason}); what the run wrote is in {self.folder}"
            ) from None


def make_mirror(url: str) -> Mirror:
    """Make the mirror of a run folder on object storage.

    Raises:
        ConfigError: fsspec, or its package for that scheme, is not installed.
    """
    try:
        assert isinstance(place(url), Remote)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Mirror(url.rstrip("/"), working_folder(url.rstrip("/")))


def _step(entry: str) -> int:
    return int(entry.partition(".")[0])


def _delete(system: Any, root: str, names: Iterable[str]) -> None:
    """Delete objects one by one, in order: a storage's listing of whole folders may be outdated."""
    for name in names:
        with suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")


def _files(folder: Path) -> list[Path]:
    """Return the files to send: no locks, no temporary files."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns
