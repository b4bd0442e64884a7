"""Reading a trace, with neither framework installed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from parity.measure.site import Site, Stage
from parity.measure.traces.format import FORMAT, INDEX, VERSION, Event, ModuleFacts, TraceIndex
from vit_config import ConfigError, MissingFileError, WeightsError
from vit_config.files.foreign import read_text
from vit_config.files.lasting import lasting
from vit_config.files.safetensors_header import read_file_header
from vit_config.files.seal import tensors_of
from vit_config.files.stored import Stored

_LONGEST = 1000
"""Longest error message, in characters: a file damaged in one place may be wrong everywhere."""


class Trace:
    """A recorded program: its modules, and every tensor that was seen, read when asked for."""

    def __init__(self, path: str | Path) -> None:
        """Open a trace.

        Raises:
            MissingFileError: there is no such folder, it holds no trace, or one of its files is missing.
            WeightsError: the index or a file is damaged, truncated or of another version.
        """
        self.path = Path(path)
        self.index = _read_index(self.path)
        self.events = self.index.events
        self.modules: dict[str, ModuleFacts] = {each.path: each for each in self.index.modules}
        self._sites = {event.site: event for event in self.events}
        if len(self._sites) < len(self.events):
            twice = next(e for e in self.events if self._sites[e.site] is not e)
            raise WeightsError(
                f"{self.path}: two events of step {twice.step} are {twice.site}; record it again"
            )
        self._files: dict[str, dict[str, Stored]] = {}
        for event in self.events:
            self._check(event)
        self._load = lru_cache(maxsize=8)(self._read)
        called = {event.path for event in self.events if event.stage == "forward"}
        self.holders = frozenset(each[:i] for each in called for i, c in enumerate(each) if c == ".")
        """Paths of modules below which modules are called."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that were recorded, in order."""
        return tuple(sorted({event.step for event in self.events}))

    def __contains__(self, site: Site) -> bool:
        return site in self._sites

    def __getitem__(self, site: Site) -> Event:
        return self._sites[site]

    def of(self, stage: Stage, step: int | None = None) -> Iterator[Event]:
        """Return the events of one stage, of one step if given, in the order in which they were seen."""
        return (e for e in self.events if e.stage == stage and step in (None, e.step))

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """Return the sites in order, of one stage if given."""
        return (event.site for event in self.events if stage in (None, event.stage))

    def read(self, event: Event | Site) -> np.ndarray:
        """Return the tensor that an event saw, or its sample.

        Raises:
            WeightsError: its bytes are damaged.
        """
        event = self._sites[event] if isinstance(event, Site) else event
        array = self._load(event.file, event.tensor)
        if event.begin is None:
            return array
        shape = event.kept_shape
        return array[event.begin : event.begin + math.prod(shape)].reshape(shape)

    def _read(self, file: str, tensor: str) -> np.ndarray:
        array = self._tensors(file)[tensor].load()
        array.flags.writeable = False  # it is cached and handed out again
        return array

    def _tensors(self, file: str) -> dict[str, Stored]:
        if file not in self._files:
            path = self.path / file
            if not path.is_file():
                raise MissingFileError(
                    f"{self.path}: its file {file} is missing; copy the whole folder again"
                )
            path = lasting(path)
            self._files[file] = tensors_of(read_file_header(path), path)
        return self._files[file]

    def _check(self, event: Event) -> None:
        stored = self._tensors(event.file).get(event.tensor)
        if stored is None or stored.dtype.name != event.dtype or not _fits(stored.shape, event):
            actual = "not there" if stored is None else f"{stored.dtype} of shape {stored.shape}"
            raise WeightsError(
                f"{self.path}: the index announces {event.dtype} of shape {event.shape} for"
                f" {event.site} in {event.file}, but it is {actual}; record it again"
            )


def _fits(shape: tuple[int, ...], event: Event) -> bool:
    if event.spacing and (len(event.spacing) != len(event.shape) or not all(event.spacing)):
        return False
    if event.begin is None:
        return shape == event.kept_shape
    return len(shape) == 1 and event.begin + math.prod(event.kept_shape) <= shape[0]


def is_trace(path: str | Path) -> bool:
    """Return whether a path is a folder that holds a trace, or the remains of one."""
    folder = Path(path)
    return folder.is_dir() and ((folder / INDEX).is_file() or folder.suffix == ".trace")


def _read_index(folder: Path) -> TraceIndex:
    path = folder / INDEX
    if not folder.is_dir():
        raise MissingFileError(f"{folder}: no such trace; give the folder that parity.record wrote")
    if not path.is_file():
        raise MissingFileError(
            f"{folder}: holds no {INDEX}, the recording was not finished; record it again"
        )
    try:
        return TraceIndex.from_json(read_text(path), where=str(path))
    except UnicodeDecodeError:
        raise WeightsError(f"{path}: damaged, not text; record it again") from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ConfigError) else f"{path}: damaged ({error})"
        raise WeightsError(
            f"{reason[:_LONGEST]}; expected a {FORMAT} of version {VERSION}, record it again"
        ) from None
