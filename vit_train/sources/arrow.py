"""Sets of Hugging Face's `datasets` on disk, read by pyarrow alone: Arrow files and Parquet files."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vit_config.errors import DataError, MissingFileError
from vit_train.dataset import ImageDataset, fingerprint, train_and_test
from vit_train.records import ImageShape, Records
from vit_train.sources.place import Place, Remote, ending_in

SHAPE: ImageShape = (None, None, 3)
KEPT_BYTES = 2**30
"""Parquet is read by groups of rows; so many bytes of them are kept."""


class Rows(Sequence[Any], ABC):
    """Rows of some files, in order; images are taken out as the bytes that they are stored as.

    Args:
        image, label: which columns these are.
    """

    def __init__(self, files: Sequence[Place], image: str, label: str) -> None:
        self.files, self.image, self.label = list(files), image, label

    def __getstate__(self) -> dict[str, Any]:
        """Without what is open: another process opens it anew."""
        return {name: getattr(self, name) for name in ("files", "image", "label")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """How many rows each part has."""

    @abstractmethod
    def part(self, number: int) -> pa.Table:
        """Both columns of some rows."""

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.lengths)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: Any) -> dict[str, Any]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        row = index - int(self._ends[number]) + self.lengths[number]
        part = self.part(number)
        image, label = (part.column(name)[row].as_py() for name in (self.image, self.label))
        if isinstance(image, dict):  # {"bytes": ..., "path": ...}, one of them null
            content, path = image.get("bytes"), image.get("path")
            if content is None and not path:
                raise OSError("neither the bytes nor the path of its image are stored")
            image = Path(str(path)).read_bytes() if content is None else content
        return {"image": image, "label": -1 if label is None else label}


class ArrowRows(Rows):
    """Of Arrow files in the streaming format, mapped into memory."""

    @cached_property
    def _tables(self) -> list[pa.Table]:
        tables = [pa.ipc.open_stream(pa.memory_map(str(path))).read_all() for path in self.files]
        return [table.select([self.image, self.label]) for table in tables]

    @property
    def lengths(self) -> list[int]:
        """How many rows each file has."""
        return [table.num_rows for table in self._tables]

    def part(self, number: int) -> pa.Table:
        """One file."""
        return self._tables[number]


class ParquetRows(Rows):
    """Of Parquet files, a group of rows at a time."""

    @cached_property
    def _groups(self) -> list[tuple[Place, int, int, int]]:
        """File, number in it, rows and bytes of each group."""
        groups = []
        for path in self.files:
            with path.open("rb") as file:
                about = pq.read_metadata(file)
            rows = [about.row_group(i) for i in range(about.num_row_groups)]
            groups += [(path, i, row.num_rows, row.total_byte_size) for i, row in enumerate(rows)]
        return groups

    @cached_property
    def lengths(self) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """How many rows each group has."""
        return [rows for _, _, rows, _ in self._groups]

    def part(self, number: int) -> pa.Table:
        """One group."""
        return self._read(number)

    @cached_property
    def _read(self) -> Any:
        largest = max(size for *_, size in self._groups)

        def read(number: int) -> pa.Table:
            path, group, _, _ = self._groups[number]
            with path.open("rb") as opened:
                file = pq.ParquetFile(opened, page_checksum_verification=True)
                return file.read_row_group(group, columns=[self.image, self.label])

        return lru_cache(maxsize=max(1, KEPT_BYTES // max(largest, 1)))(read)


def open_arrow(spec: str, path: Place) -> ImageDataset:
    """Open a folder that ``DatasetDict.save_to_disk`` wrote, or one of Parquet files as on the Hub.

    The images are the column of type Image, the labels that of type ClassLabel (the one called
    ``label`` where there are several). All images are read as RGB, or as
    a model wants them.

    Raises:
        MissingFileError: no such folder, or nothing of the kind in it.
        DataError: a damaged file, no such columns, or only one split.
    """
    try:
        if (path / "dataset_dict.json").is_file():
            features, rows = _saved(spec, path)
        elif path.is_dir() and ending_in(path, ".parquet"):
            features, rows = _parquet(spec, path)
        else:
            raise MissingFileError(
                f"{spec}: {path} has neither dataset_dict.json nor Parquet files; write it by"
                f' `datasets.load_dataset(NAME).save_to_disk("{path}")`'
            )
        image, label, names = _columns(spec, features)
        splits = {
            split: Records(
                kind(files, image, label),
                where=f"{spec}, split {split}",
                num_classes=len(names),
                image_shape=SHAPE,
            )
            for split, (kind, files) in rows.items()
        }
        pair = train_and_test(spec, splits)
    except (OSError, pa.ArrowException, json.JSONDecodeError) as error:
        if isinstance(error, MissingFileError):
            raise
        reason = str(error).partition("\n")[0]
        raise DataError(f"{spec}: the set in {path} is damaged ({reason}); copy it again") from None
    return ImageDataset(
        spec,
        *pair,
        num_classes=len(names),
        image_shape=SHAPE,
        class_names=names,
        of_files=True,
        fingerprint=fingerprint("hf", names, SHAPE, *pair),
    )


def _saved(spec: str, path: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Features and files of what `save_to_disk` wrote."""
    if isinstance(path, Remote):
        raise DataError(
            f"{spec}: Arrow files are mapped into memory, which needs a local disk; copy the set, or"
            " write it as Parquet"
        )
    features, rows = {}, {}
    for split in json.loads((path / "dataset_dict.json").read_text())["splits"]:
        state = json.loads((path / split / "state.json").read_text())
        if state.get("_indices_data_files") or state.get("_indices_files"):
            raise DataError(
                f"{spec}: split {split} is a selection of other rows; save it again after"
                " `flatten_indices()`"
            )
        files = [path / split / each["filename"] for each in state["_data_files"]]
        features = json.loads((path / split / "dataset_info.json").read_text())["features"]
        rows[split] = (ArrowRows, files)
    return features, rows


def _parquet(spec: str, path: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Features and files of a folder of Parquet, whose splits are in the files' names."""
    rows: dict[str, Any] = {}
    features: dict[str, Any] = {}
    for file in ending_in(path, ".parquet"):
        name = "/".join(file.relative_to(path).parts)
        if found := re.search(r"train|validation|valid|val|test", name.lower()):
            split = {"valid": "validation", "val": "validation"}.get(found[0], found[0])
            rows.setdefault(split, (ParquetRows, []))[1].append(file)
            with file.open("rb") as opened:
                about = (pq.read_schema(opened).metadata or {}).get(b"huggingface", b"{}")
            features = features or json.loads(about).get("info", {}).get("features", {})
    return features, rows


def _columns(spec: str, features: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """The names of both columns, and of the classes."""
    kinds = {name: each.get("_type") for name, each in features.items() if isinstance(each, dict)}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    if not images or not labels:
        there = ", ".join(f"{name} ({kind})" for name, kind in kinds.items()) or "none"
        raise DataError(
            f"{spec}: describes the columns {there}; expected one of type Image and one of type"
            " ClassLabel; write the set by `datasets` with these features"
        )
    label = "label" if "label" in labels else labels[0]
    return images[0], label, tuple(features[label]["names"])
