"""Recordings of what one run of one model computed: their protocol, and one held by this process.

The other implementation is `parity.measure.traces.Trace`: streamed to a folder, and read from there.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from parity.measure.available import available
from parity.measure.site import Site, Stage

_LEAST, _MOST = 384 * 2**20, 2 * 2**30
"""Bounds of a recording's memory, in bytes; between them, the available memory decides."""


class Recording(Protocol):
    """Arrays by site, in the order in which they were computed."""

    def __contains__(self, site: Site) -> bool:
        """Return whether an array was seen at a site."""
        ...

    def read(self, site: Site) -> np.ndarray:
        """Return the array that was seen at a site."""
        ...

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """Yield all sites in order, or those of one stage."""
        ...


class _Entry(NamedTuple):
    """An array, or the file that holds it, and its type."""

    where: np.ndarray | Path
    dtype: np.dtype


class HeldRecording:
    """A recording that lives as long as this object; large ones lie on disk, so huge models fit."""

    def __init__(self) -> None:
        self._entries: dict[Site, _Entry] = {}
        self._recent: deque[tuple[np.ndarray, _Entry]] = deque(maxlen=4)
        self._room = _room()
        self._bytes = 0
        self._folder: Path | None = None

    def add(self, site: Site, array: np.ndarray) -> None:
        """Keep an array, once: one module's output is the next one's input.

        A site that is taken stands for another call of its module, and is numbered so.
        """
        while site in self._entries:
            site = site._replace(call=site.call + 1)
        known = next((entry for other, entry in self._recent if other is array), None)
        self._entries[site] = known or self._keep(array)
        self._recent.append((array, self._entries[site]))

    def _keep(self, array: np.ndarray) -> _Entry:
        array = np.ascontiguousarray(array)
        self._bytes += array.nbytes
        if self._bytes <= self._room:
            return _Entry(array, array.dtype)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="parity-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / f"{len(self._entries)}.npy"
        np.save(path, array.view(np.uint8))  # bytes: numpy's file format does not know bfloat16
        return _Entry(path, array.dtype)

    def __contains__(self, site: Site) -> bool:
        return site in self._entries

    def read(self, site: Site) -> np.ndarray:
        """Return the array that was seen at a site."""
        value, dtype = self._entries[site]
        return value if isinstance(value, np.ndarray) else np.load(value).view(dtype)

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """Yield all sites in order, or those of one stage."""
        return (site for site in self._entries if stage in (None, site.stage))


def _room() -> int:
    """Return the bytes that a recording keeps in memory, a fifth of what the system has available;
    further arrays go to a temporary folder."""
    return min(max((available() or 0) // 5, _LEAST), _MOST)
