"""Rows of Arrow and Parquet files, with checked column types, and memory limited to a small multiple
of the files' size."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vit_config.errors import DataError
from vit_config.files.held import most_of
from vit_config.images.pixels import LONGEST_FILE
from vit_train.sources.place import (
    Place,
    check_here,
    on_disk,
    open_ordinary,
    read_all,
    resolve_below,
    stamp_of,
)

KEPT_BYTES = 2**30
"""Bytes of Parquet row groups that are kept in memory."""
ROW = 16
"""Least bytes of a row in memory."""
AT_ONCE = 64
"""Most rows of Parquet that are read before their memory is checked; each may have all bytes of its
group's dictionary."""


class TableRows(Sequence[Any], ABC):
    """Rows of some files, in order; images are returned as their stored bytes.

    Args:
        root: folder of the set; files that rows name lie below it.
        image, label: names of the two columns.
    """

    def __init__(self, root: Place, files: Sequence[Place], image: str, label: str) -> None:
        self.root, self.files, self.image, self.label = root, list(files), image, label

    def __getstate__(self) -> dict[str, Any]:
        """Leave open files out: another process opens them anew."""
        return {name: getattr(self, name) for name in ("root", "files", "image", "label")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Number of rows of each part."""

    @abstractmethod
    def part(self, number: int) -> pa.Table:
        """Return both columns of one part."""

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.lengths)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: Any) -> Any:
        number = int(np.searchsorted(self._ends, index, side="right"))
        row = index - int(self._ends[number]) + self.lengths[number]
        try:
            part = self.part(number)
            image, label = (part.column(name)[row] for name in (self.image, self.label))
            content = self._content(image)
        except pa.ArrowException as error:
            raise OSError(str(error)) from None
        return {"image": content, "label": -1 if label.as_py() is None else label.as_py()}

    def _content(self, image: Any) -> bytes:
        """Return the bytes of an image, from the row or from the file that it names."""
        if isinstance(image, pa.StructScalar):  # {"bytes": ..., "path": ...}, one of them null
            there = image.keys() if image.is_valid else ()
            content, path = (image[name] if name in there else None for name in ("bytes", "path"))
            name = path.as_py() if path is not None else None
            if content is None or not content.is_valid:
                if not name:
                    raise OSError("neither the bytes nor the path of its image are stored")
                file = resolve_below(self.root, name.removeprefix(f"{self.root}/"))
                check_here(self.root, file)
                return read_all(file, LONGEST_FILE)
            image = content
        if not image.is_valid:
            raise OSError("no image is stored")
        if (size := image.as_buffer().size) > LONGEST_FILE:
            raise OSError(f"its image has {size} bytes; {LONGEST_FILE} are enough")
        return image.as_py()

    def checked(self, file: Place, schema: pa.Schema) -> None:
        """Check that the columns exist and have the right types. DataError: they do not."""
        for name, fits, expected in (
            (self.image, _holds_images, "a struct of bytes and path, or binary"),
            (self.label, lambda kind: pa.types.is_integer(kind) or pa.types.is_null(kind), "an integer"),
        ):
            count = schema.names.count(name)
            actual = str(schema.field(name).type) if count == 1 else f"there {count} times"
            if count != 1 or not fits(schema.field(name).type):
                raise DataError(
                    f"{file}: column {name!r} is {actual}, expected {expected}; write the set again by"
                    " `datasets`"
                )


def _holds_images(kind: pa.DataType) -> bool:
    def is_bytes(each: pa.DataType) -> bool:
        return pa.types.is_binary(each) or pa.types.is_large_binary(each) or pa.types.is_null(each)

    def is_text(each: pa.DataType) -> bool:
        return pa.types.is_string(each) or pa.types.is_large_string(each) or pa.types.is_null(each)

    if not pa.types.is_struct(kind):
        return is_bytes(kind)
    fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
    if len(fields) < kind.num_fields:
        return False
    known = {"bytes": is_bytes, "path": is_text}
    return bool(known.keys() & fields.keys()) and all(
        fits(fields[name]) for name, fits in known.items() if name in fields
    )


def _check_made(file: Place, nbytes: int) -> None:
    """Refuse a file that takes too much memory for its size. OSError: it does."""
    size = on_disk(file)
    if nbytes > most_of(size):
        raise OSError(f"{file}: its {size} bytes would make {nbytes}; do not trust it")


class ArrowRows(TableRows):
    """Rows of Arrow files in the streaming format, mapped into memory."""

    @cached_property
    def _tables(self) -> list[pa.Table]:
        return [self._table(path) for path in self.files]

    def _table(self, path: Place) -> pa.Table:
        with open_ordinary(path):  # no device, which cannot be mapped
            pass
        source = pa.memory_map(str(path))
        _check_made(
            path, sum(_unpacked(message) for message in pa.ipc.MessageReader.open_stream(source))
        )
        source.seek(0)
        with pa.ipc.open_stream(source) as stream:
            self.checked(path, stream.schema)
            table = stream.read_all().select([self.image, self.label])
        _check_made(path, ROW * table.num_rows)  # a column of nothing has any number of rows
        table.validate(full=True)  # offsets that point elsewhere would be followed
        return table

    @property
    def lengths(self) -> list[int]:
        """Number of rows of each file."""
        return [table.num_rows for table in self._tables]

    def part(self, number: int) -> pa.Table:
        """Return the columns of one file."""
        return self._tables[number]


def _unpacked(message: Any) -> int:
    """Return the unpacked size in bytes that a message's compressed buffers declare; 0 if it has none.

    The format is Arrow's Message.fbs: a message is a table of version, type of header, header; a
    batch of rows is a table of length, nodes, buffers, compression; a dictionary's batch is its
    second field.
    """
    head, body = message.metadata.to_pybytes(), message.body
    (root,) = struct.unpack_from("<I", head)
    batch = _field(head, root, 2)
    if message.type == "dictionary":
        batch = batch and _field(head, batch, 1)
    if message.type not in ("record batch", "dictionary") or not batch or not _field(head, batch, 3):
        return 0
    buffers = _field(head, batch, 2)
    (count,) = struct.unpack_from("<I", head, buffers)
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", head, buffers + 4 + 16 * number)
        if length >= 8:
            (size,) = struct.unpack("<q", body[offset : offset + 8].to_pybytes())
            total += max(size, 0)
    return total


def _field(head: bytes, table: int, number: int) -> int:
    """Return the place that a field of a flatbuffers table points to; 0 if the field is absent."""
    (back,) = struct.unpack_from("<i", head, table)
    (length,) = struct.unpack_from("<H", head, table - back)
    if 4 + 2 * number >= length:
        return 0
    (at,) = struct.unpack_from("<H", head, table - back + 4 + 2 * number)
    if not at:
        return 0
    (onward,) = struct.unpack_from("<I", head, table + at)
    return table + at + onward


class ParquetRows(TableRows):
    """Rows of Parquet files, a group of rows at a time."""

    @cached_property
    def _groups(self) -> list[tuple[Place, Sequence[int], int, int, int]]:
        """File with its stamp, number in the file, rows and bytes of each group."""
        groups = []
        for path in self.files:
            known = stamp_of(path)
            with open_ordinary(path, known) as file:
                about = pq.read_metadata(file)
            self.checked(path, about.schema.to_arrow_schema())
            rows = [about.row_group(i) for i in range(about.num_row_groups)]
            _check_made(path, sum(max(row.total_byte_size, ROW * row.num_rows) for row in rows))
            groups += [(path, known, i, row.num_rows, row.total_byte_size) for i, row in enumerate(rows)]
        return groups

    @cached_property
    def lengths(self) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Number of rows of each group."""
        return [rows for *_, rows, _ in self._groups]

    def part(self, number: int) -> pa.Table:
        """Return the columns of one group."""
        return self._read(number)

    @cached_property
    def _read(self) -> Any:
        largest = max(size for *_, size in self._groups)

        def read(number: int) -> pa.Table:
            path, known, group, rows, nbytes = self._groups[number]
            batches: list[pa.RecordBatch] = []
            with open_ordinary(path, known) as opened:
                file = pq.ParquetFile(opened, page_checksum_verification=True)
                of_both = {"row_groups": [group], "columns": [self.image, self.label]}
                at_once = max(1, min(AT_ONCE, most_of(on_disk(path)) // max(nbytes, 1)))
                for batch in file.iter_batches(batch_size=at_once, **of_both):
                    batches.append(batch)
                    _check_made(path, sum(each.nbytes for each in batches))
            table = pa.Table.from_batches(batches)
            if table.num_rows != rows:
                raise OSError(f"{path}: group {group} has {table.num_rows} rows, its end says {rows}")
            return table

        return lru_cache(maxsize=max(1, KEPT_BYTES // max(largest, 1)))(read)
