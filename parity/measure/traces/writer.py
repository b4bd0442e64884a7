"""Writing a trace: its tensors and its index, step by step."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from parity.measure.site import STAGES, Site
from parity.measure.traces.format import FORMAT, INDEX, VERSION, Event, ModuleFacts, TraceIndex
from parity.measure.traces.pool import Pooled, TensorPool
from parity.measure.traces.sample import Sample
from parity.measure.traces.stream import FileTensor, Stream
from vit_config import ConfigError
from vit_config.files.atomic import atomic_folder

_DEFAULTS = {
    name: field.default for name, field in Event.model_fields.items() if not field.is_required()
}


class Writer:
    """A trace that is being written; the folder gets its name when the trace is closed."""

    def __init__(
        self,
        path: str | Path,
        *,
        framework: Literal["torch", "jax", ""] = "",
        versions: Mapping[str, str] | None = None,
        precision: Mapping[str, str] | None = None,
        keep: int | None = None,
        force: bool = False,
    ) -> None:
        """Start a trace.

        Args:
            keep: largest number of elements kept of one tensor. None keeps everything.
            force: replace an existing trace.

        Raises:
            MissingFileError: the folder to write in does not exist.
            ConfigError: there is something at `path` already, or `keep` is not positive.
        """
        if keep is not None and keep < 1:
            raise ConfigError(f"keep = {keep}: must be at least 1")
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(atomic_folder(path, force=force))
        self._head: dict[str, Any] = {
            "framework": framework,
            "versions": dict(versions or {}),
            "precision": dict(precision or {}),
        }
        self._stream = Stream(self._folder, keep)
        self._modules: dict[str, ModuleFacts] = {}
        self._index = (self._folder / INDEX).open("w", encoding="utf-8")
        self._stack.callback(self._index.close)
        self._index.write(f'{{"format":"{FORMAT}","version":{VERSION},"events":[')
        self._written = 0
        self._added: list[Any] = []
        """Tensors of the running step, as `_Events` reads them: an object for each would keep
        Python's garbage collector busy."""
        self._places: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._texts: _Texts | None = None
        """Texts of the step before, which is most often the same."""
        self._lock = threading.Lock()

    def module(self, path: str, kind: str, facts: Mapping[str, Any]) -> None:
        """Describe a module; the first description of a path is kept."""
        if path not in self._modules:
            self._modules[path] = ModuleFacts(path=path, kind=kind, facts=dict(facts))

    def described(self, path: str) -> bool:
        """Return whether a module of that path was described."""
        return path in self._modules

    @property
    def keep(self) -> int | None:
        """Largest number of elements kept of one tensor; None keeps everything."""
        return self._stream.keep

    def store(self, array: np.ndarray | Sample) -> FileTensor | Pooled:
        """Keep a tensor, copied if need be, whose site is not known yet.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        return self._stream.store(array)

    def add(
        self, site: Site, value: np.ndarray | Sample | FileTensor | Pooled, order: int | None = None
    ) -> None:
        """Add a tensor, copied if need be, at its site.

        A site seen before in the same step is a further call of the same module.

        Args:
            order: place among the tensors of its step and stage, where they arrive in another order.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        stored = value if isinstance(value, (FileTensor, Pooled)) else self._stream.store(value)
        place = site[1:]
        with self._lock:
            self._added += (site.step, self._places.setdefault(place, place), order, stored)

    def end_step(self) -> None:
        """Write the tensors added since the last step; none of a step that is over may follow.

        Raises:
            ConfigError: a type that the files cannot hold.
            OSError: writing failed.
        """
        with self._lock:
            added, self._added = self._added, []
        pools = dict.fromkeys(each.pool for each in added[3::4] if isinstance(each, Pooled))
        lying = {
            pool: self._stream.pooled(f"p{self._written + i}", pool) for i, pool in enumerate(pools)
        }
        events = _Events.of(added, lying)
        if self._texts is None or self._texts.about != events.about:
            self._texts = _Texts(events.about)
        if added:
            self._index.write(",\n" if self._written else "\n")
            self._index.write(",\n".join(self._texts.lines(events)))
        self._written += len(events.wholes)
        self._stream.end_step()

    def close(self, ended_by: str | None = None) -> None:
        """Write the remaining tensors and the index, and give the folder its name."""
        with self._stack:
            self.end_step()
            self._stream.close()
            index = TraceIndex(**self._head, modules=tuple(self._modules.values()), ended_by=ended_by)
            rest = index.model_dump(mode="json", exclude_defaults=True)
            text = json.dumps(rest, separators=(",", ":"), allow_nan=False)
            self._index.write("]" + ("," + text[1:] if rest else "}") + "\n")


class _About(NamedTuple):
    """The fields of the events of one step, each a list in the order of arrival."""

    steps: list[int]
    """Number of steps after the first event's."""
    places: list[tuple[Any, ...]]
    """Stage, path, port and call."""
    orders: list[int | None]
    """Place among the others, if it is not that of arrival."""
    begins: list[int | None]
    shapes: list[tuple[int, ...]]
    spacings: list[tuple[int, ...] | None]
    dtypes: list[str]


class _Events(NamedTuple):
    """The events of one step."""

    first: int
    """The step of the first event."""
    wholes: list[FileTensor]
    """The stored tensor that holds each event's."""
    about: _About

    @classmethod
    def of(cls, added: list[Any], lying: Mapping[TensorPool, FileTensor]) -> _Events:
        first, stored = added[0] if added else 0, added[3::4]
        wholes = [lying[each.pool] if isinstance(each, Pooled) else each for each in stored]
        about = _About(
            [step - first for step in added[0::4]],
            added[1::4],
            added[2::4],
            [each.begin if isinstance(each, Pooled) else None for each in stored],
            [each.shape for each in stored],
            [each.spacing for each in stored],
            [whole.dtype for whole in wholes],
        )
        return cls(first, wholes, about)


class _Texts:
    """The events of one step as JSON, reused for other steps whose events have the same fields."""

    def __init__(self, about: _About) -> None:
        self.about = about
        stages = {stage: i for i, stage in enumerate(STAGES)}
        seen: set[Site] = set()
        rows = []
        for i, (step, place, order, *rest) in enumerate(zip(*about, strict=True)):
            site = Site(step, *place)
            while site in seen:
                site = site._replace(call=site.call + 1)
            seen.add(site)
            key = step, stages[site.stage], i if order is None else order
            rows.append((key, i, step, _text(site, *rest)))
        self._rows = [row for _, *row in sorted(rows, key=lambda row: row[0])]

    def lines(self, events: _Events) -> Iterator[str]:
        """Yield the JSON of each event, in the order of a trace."""
        for i, step, text in self._rows:
            whole, step = events.wholes[i], events.first + step
            yield f'{{"step":{step},"file":"{whole.file}","tensor":"{whole.tensor}",{text}'


def _text(
    site: Site,
    begin: int | None,
    shape: tuple[int, ...],
    spacing: tuple[int, ...] | None,
    dtype: str,
) -> str:
    """Return an `Event`'s fields other than the defaults as JSON, without step, file and tensor."""
    fields = dict(zip(("stage", "path", "port", "call"), site[1:], strict=True))
    fields |= {"begin": begin, "shape": shape, "dtype": dtype, "spacing": spacing}
    fields = {
        name: value
        for name, value in fields.items()
        if name not in _DEFAULTS or value != _DEFAULTS[name]
    }
    return json.dumps(fields, separators=(",", ":"), allow_nan=False)[1:]
