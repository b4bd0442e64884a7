"""Writing a trace: its tensors, in a thread beside the recorded program, and its index, step by step."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from xxhash import xxh3_128_digest

from parity.measure.site import STAGES, Site
from parity.measure.traces.format import FORMAT, INDEX, VERSION, Event, ModuleFacts, Program, TraceIndex
from parity.measure.traces.sample import Sample, sample
from vit_config import ConfigError
from vit_config.files.atomic import atomic_file, atomic_folder
from vit_config.files.safetensors_header import TYPES
from vit_config.files.safetensors_stream import write_stream
from vit_config.files.seal import array_bytes
from vit_config.files.stored import Stored, type_name

SMALL = 4096
"""Largest size of a tensor, or of its sample, that lies in a row with others: files of thousands of
tensors are slow."""
FILE_BYTES = 2**26
"""Bytes of tensors at which a file is written."""
WAITING_FILES = 2
"""Files that may wait for the writing thread; beyond these, the program waits."""

_TYPES = frozenset(TYPES.values())
_DEFAULTS = {
    name: field.default for name, field in Event.model_fields.items() if not field.is_required()
}


class _Place(NamedTuple):
    """Where a tensor, or its sample, lies."""

    file: str
    tensor: str


class Writer:
    """A trace that is being written; the folder gets its name when the trace is closed."""

    def __init__(
        self,
        path: str | Path,
        *,
        framework: Literal["torch", "jax", ""] = "",
        versions: Mapping[str, str] | None = None,
        precision: Mapping[str, str] | None = None,
        program: Program | None = None,
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
        self.keep = keep
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(atomic_folder(path, force=force))
        self._head: dict[str, Any] = {
            "framework": framework,
            "versions": dict(versions or {}),
            "precision": dict(precision or {}),
            "program": program,
        }
        self._modules: dict[str, ModuleFacts] = {}
        self._index = (self._folder / INDEX).open("w", encoding="utf-8")
        self._stack.callback(self._index.close)
        self._index.write(f'{{"format":"{FORMAT}","version":{VERSION},"events":[')
        self._written = False
        self._added: list[tuple[Site, Sample]] = []
        """Tensors of the running step."""
        self._known: dict[tuple[object, ...], _Place] = {}
        self._tensors: dict[str, np.ndarray] = {}
        """Tensors of the file that is written next."""
        self._bytes = 0
        self.total_bytes = 0
        """Bytes of all tensors that were written, or wait to be."""
        self._writing: list[Future[None]] = []
        """One write for each file, in order."""
        self._thread = ThreadPoolExecutor(1, "trace")

    def module(self, path: str, kind: str, facts: Mapping[str, Any]) -> None:
        """Describe a module; the first description of a path is kept."""
        if path not in self._modules:
            self._modules[path] = ModuleFacts(path=path, kind=kind, facts=dict(facts))

    def described(self, path: str) -> bool:
        """Return whether a module of that path was described."""
        return path in self._modules

    def add(self, site: Site, value: np.ndarray | Sample) -> None:
        """Add a tensor at its site, copied unless it is owned.

        A site seen before in the same step is a further call of the same module.

        Raises:
            ConfigError: a type that the files cannot hold.
        """
        part = value if isinstance(value, Sample) else sample(np.asarray(value), self.keep)
        array = np.asarray(part.values)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if type_name(array.dtype) not in _TYPES:
            raise ConfigError(f"a trace cannot hold the type {array.dtype}; convert the array first")
        own = part.owned and array.flags.c_contiguous
        self._added.append((site, part._replace(values=array if own else array.copy(order="C"))))

    def end_step(self) -> None:
        """Have the tensors added since the last step written; none of a step that is over may follow.

        Raises:
            OSError: writing failed.
        """
        added, self._added = self._added, []
        rows: dict[np.dtype, list[np.ndarray]] = defaultdict(list)
        ends, calls = Counter[np.dtype](), Counter[Site]()
        lines: list[tuple[Site, _Place | np.dtype, dict[str, Any]]] = []
        for site, part in sorted(added, key=lambda each: (each[0].step, STAGES.index(each[0].stage))):
            array, calls[site] = part.values, calls[site] + 1
            about = {"shape": part.shape, "dtype": type_name(array.dtype), "spacing": part.spacing}
            if array.size <= SMALL:
                place, about["begin"] = array.dtype, ends[array.dtype]
                rows[array.dtype].append(array.reshape(-1))
                ends[array.dtype] += array.size
            else:
                place = self._put(array)
            lines.append((site._replace(call=site.call + calls[site] - 1), place, about))
        places = {dtype: self._put(np.concatenate(row)) for dtype, row in rows.items()}
        texts = []
        for site, place, about in lines:
            lying = place if isinstance(place, _Place) else places[place]
            texts.append(_text(site._asdict() | about | lying._asdict()))
        if texts:
            self._index.write((",\n" if self._written else "\n") + ",\n".join(texts))
            self._written = True
        self._check()

    def _put(self, array: np.ndarray) -> _Place:
        """Have an array written, of equal ones only one: what one step leaves, the next begins with."""
        known = (array.dtype, array.shape, xxh3_128_digest(array_bytes(array)))
        if known not in self._known:
            name = f"t{len(self._tensors)}"
            self._known[known] = _Place(self._file, name)
            self._tensors[name] = array
            self._bytes += array.nbytes
            self.total_bytes += array.nbytes
            if self._bytes >= FILE_BYTES:
                self._write()
                wait(self._writing[:-WAITING_FILES])
        return self._known[known]

    @property
    def _file(self) -> str:
        return f"{len(self._writing):05}.safetensors"

    def _write(self) -> None:
        job = self._thread.submit(_write_file, self._folder / self._file, self._tensors)
        self._writing.append(job)
        self._tensors, self._bytes = {}, 0

    def _check(self) -> None:
        """Raise the error of the writing thread, if there was one."""
        for each in self._writing:
            if each.done():
                each.result()

    def close(self, ended_by: str | None = None) -> None:
        """Write the remaining tensors and the index, and give the folder its name."""
        with self._stack:
            self.end_step()
            if self._tensors:
                self._write()
            self._thread.shutdown()
            self._check()
            index = TraceIndex(**self._head, modules=tuple(self._modules.values()), ended_by=ended_by)
            rest = index.model_dump(mode="json", exclude_defaults=True)
            text = json.dumps(rest, separators=(",", ":"), allow_nan=False)
            self._index.write("]" + ("," + text[1:] if rest else "}") + "\n")


def _text(fields: Mapping[str, Any]) -> str:
    """Return an `Event`'s fields other than the defaults as JSON."""
    told = {k: v for k, v in fields.items() if k not in _DEFAULTS or v != _DEFAULTS[k]}
    return json.dumps(told, separators=(",", ":"), allow_nan=False)


def _write_file(path: Path, tensors: dict[str, np.ndarray]) -> None:
    with atomic_file(path) as file:
        stored = {name: Stored.of(array) for name, array in tensors.items()}
        write_stream(file, stored, {}, sealed=True)
