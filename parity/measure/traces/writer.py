"""Writing a trace: its tensors as they come, its index at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parity.measure.site import STAGES, Site
from parity.measure.traces.format import INDEX, Event, Index, ModuleFacts
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
        self._events: list[tuple[int, Site, Kept]] = []
        self._seen: set[Site] = set()
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

    def store(self, array: np.ndarray | Sample) -> Kept:
        """Keep a tensor whose site is not known yet; copied if need be.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        return self._stream.store(array)

    def add(self, site: Site, value: np.ndarray | Sample | Kept, order: int | None = None) -> None:
        """Write down a tensor, which is copied if need be.

        A site that was seen before in the same step is a further call of the same module.

        Args:
            order: its place among the tensors of its step and stage, where that is not the order in
                which they come.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        kept = value if isinstance(value, Kept) else self._stream.store(value)
        with self._lock:
            while site in self._seen:
                site = site._replace(call=site.call + 1)
            self._seen.add(site)
            self._events.append((len(self._events) if order is None else order, site, kept))

    def check(self) -> None:
        """Raise what went wrong in writing, if anything did."""
        self._stream.check()

    def close(self, ended_by: str | None = None) -> None:
        """Write what is left, and the index; the trace has its name from now on."""
        with self._stack:
            self._stream.close()
            index = Index(**self._head, modules=tuple(self._modules.values()), ended_by=ended_by)
            content = {"format": index.format, "version": index.version}
            content |= index.model_dump(mode="json", exclude_defaults=True)
            content["events"] = self._in_order()
            text = json.dumps(content, separators=(",", ":"), allow_nan=False)
            (self._folder / INDEX).write_text(text + "\n", encoding="utf-8")

    def _in_order(self) -> list[dict[str, Any]]:
        """The fields of each `Event` that are not the default: by step, then stage, then as they came.

        There are thousands in a step. Written by hand, pydantic, which would build an object of each,
        takes no part of a step's time.
        """
        stages = {stage: i for i, stage in enumerate(STAGES)}
        place = lambda each: (each[1].step, stages[each[1].stage], each[0])  # noqa: E731
        return [
            {
                name: value
                for name, value in (site._asdict() | vars(kept)).items()
                if name not in _DEFAULTS or value != _DEFAULTS[name]
            }
            for _, site, kept in sorted(self._events, key=place)
        ]
