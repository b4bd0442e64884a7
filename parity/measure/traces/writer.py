"""Writing a trace: its tensors and its index, step by step."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parity.measure.site import STAGES, Site
from parity.measure.traces.format import FORMAT, INDEX, VERSION, Event, Index, ModuleFacts
from parity.measure.traces.pool import Part, Pool
from parity.measure.traces.sample import Sample
from parity.measure.traces.stream import Kept, Stream
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
            keep: numbers of one tensor that are kept, at most. None keeps everything.
            force: replace a trace that exists.

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
        self._events: list[tuple[int, Site, Kept | Part]] = []
        """Of the step that runs: the place of each, and where it lies."""
        self._seen: set[Site] = set()
        self._texts: dict[tuple[Any, ...], str] = {}
        """What an event says besides its step and file, in the step before."""
        self._lock = threading.Lock()

    def module(self, path: str, kind: str, facts: Mapping[str, Any]) -> None:
        """Describe a module; the first description of a path is kept."""
        if path not in self._modules:
            self._modules[path] = ModuleFacts(path=path, kind=kind, facts=dict(facts))

    def described(self, path: str) -> bool:
        """Whether a module of that path was described."""
        return path in self._modules

    @property
    def keep(self) -> int | None:
        """How many numbers of one tensor are kept."""
        return self._stream.keep

    def store(self, array: np.ndarray | Sample) -> Kept | Part:
        """Keep a tensor whose site is not known yet; copied if need be.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        return self._stream.store(array)

    def add(
        self, site: Site, value: np.ndarray | Sample | Kept | Part, order: int | None = None
    ) -> None:
        """Write down a tensor, which is copied if need be.

        A site that was seen before in the same step is a further call of the same module.

        Args:
            order: its place among the tensors of its step and stage, where that is not the order in
                which they come.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        kept = value if isinstance(value, Kept | Part) else self._stream.store(value)
        with self._lock:
            while site in self._seen:
                site = site._replace(call=site.call + 1)
            self._seen.add(site)
            self._events.append((len(self._events) if order is None else order, site, kept))

    def end_step(self) -> None:
        """Write what was added since the last step: tensors of steps that are over come no more.

        Raises:
            ConfigError: a type that the files cannot hold.
            OSError: what went wrong in writing, if anything did.
        """
        with self._lock:
            events, self._events = self._events, []
            self._seen.clear()
        pools = dict.fromkeys(kept.pool for _, _, kept in events if isinstance(kept, Part))
        lying = {
            pool: self._stream.pooled(f"p{self._written + i}", pool) for i, pool in enumerate(pools)
        }
        stages = {stage: i for i, stage in enumerate(STAGES)}
        events.sort(key=lambda each: (each[1].step, stages[each[1].stage], each[0]))
        before, self._texts = self._texts, {}
        if events:
            self._index.write(",\n" if self._written else "\n")
            texts = (self._text(site, kept, lying, before) for _, site, kept in events)
            self._index.write(",\n".join(texts))
        self._written += len(events)
        self._stream.end_step()

    def close(self, ended_by: str | None = None) -> None:
        """Write what is left, and the index; the trace has its name from now on."""
        with self._stack:
            self.end_step()
            self._stream.close()
            index = Index(**self._head, modules=tuple(self._modules.values()), ended_by=ended_by)
            rest = index.model_dump(mode="json", exclude_defaults=True)
            text = json.dumps(rest, separators=(",", ":"), allow_nan=False)
            self._index.write("]" + ("," + text[1:] if rest else "}") + "\n")

    def _text(
        self,
        site: Site,
        kept: Kept | Part,
        lying: Mapping[Pool, Kept],
        before: Mapping[tuple[Any, ...], str],
    ) -> str:
        """The fields of an `Event` that are not the default, as JSON.

        There are thousands in a step, and most were there in the step before, whose texts are given.
        """
        if isinstance(kept, Kept):
            file, tensor = kept.file, kept.tensor
            begin, shape, dtype, spacing = None, kept.shape, kept.dtype, kept.spacing
        else:
            whole = lying[kept.pool]
            file, tensor = whole.file, whole.tensor
            begin, shape, dtype, spacing = kept.begin, kept.shape, whole.dtype, kept.spacing
        key = (*site[1:], begin, shape, dtype, spacing)
        same = before.get(key)
        if same is None:
            fields = dict(zip(("stage", "path", "port", "call"), site[1:], strict=True))
            fields |= {"begin": begin, "shape": shape, "dtype": dtype, "spacing": spacing}
            fields = {
                name: value
                for name, value in fields.items()
                if name not in _DEFAULTS or value != _DEFAULTS[name]
            }
            same = json.dumps(fields, separators=(",", ":"), allow_nan=False)[1:]
        self._texts[key] = same
        return f'{{"step":{site.step},"file":"{file}","tensor":"{tensor}",{same}'
