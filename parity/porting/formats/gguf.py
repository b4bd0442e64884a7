"""GGUF, the files of llama.cpp: entries of its header, and tensors of floating-point types."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from parity.porting.formats.base import Container, Stored, guarded, lying_at
from parity.porting.formats.budget import Budget
from parity.porting.formats.flatten import check_names
from vit_config.errors import WeightsError
from vit_config.files.stored import checked_shape

KIND, MAGIC = "GGUF", b"GGUF"
FLOATS = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 28: np.dtype("<f8"), 30: np.dtype(ml_dtypes.bfloat16)}
"""Types of tensors by their number in ggml; all others are quantised, or whole numbers."""
QUANTISED = {2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
             13: "Q5_K", 14: "Q6_K", 15: "Q8_K"}  # fmt: skip
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_LONGEST = 64
"""Most values of a list that are kept: longer ones are the words of a language model."""
_ENTRY = 300
"""Bytes of memory for what is known of an entry or a tensor."""


def read_gguf(path: Path, budget: Budget) -> Container:
    """Open a file; its tensors are read when they are loaded.

    Raises:
        WeightsError: it is damaged, of another version, or quantised.
    """
    with guarded(path, KIND), path.open("rb") as file:
        reader = _Reader(file, path.stat().st_size, budget)
        version, count, entries = reader.numbers("4xIQQ")
        if version not in (2, 3):
            raise WeightsError(f"is of version {version} of GGUF; 2 and 3 are read, lowest byte first")
        metadata = {reader.text(): reader.value(*reader.numbers("I")) for _ in range(entries)}
        tensors = [(reader.text(), *reader.tensor()) for _ in range(count)]
        align = metadata.get("general.alignment", 32)
        begin = end = -(-file.tell() // align) * align
        arrays = dict[str, Stored]()
        for name, shape, kind, offset in tensors:
            if (dtype := FLOATS.get(kind)) is None:
                raise WeightsError(
                    f"is quantised ({name} is of {QUANTISED.get(kind, f'type {kind}')}), which cannot be"
                    " undone exactly; take the file of F32, F16 or BF16, or what it was made of"
                )
            shape, start = checked_shape(shape, dtype.itemsize), begin + offset
            if name in arrays:
                raise WeightsError(f"{name[:80]} is there twice; copy it again")
            end = max(end, start - (-math.prod(shape) * dtype.itemsize // align) * align)
            arrays[name] = lying_at(lambda: path.open("rb"), start, shape, dtype, path)
        if arrays and end != reader.size:
            raise WeightsError(f"has {reader.size} bytes, and its tensors end at {end}; copy it again")
        check_names(arrays)
        return Container(path, (path,), KIND, _straight(arrays), sidecars={KIND: metadata})


class _Reader:
    def __init__(self, file: BinaryIO, size: int, budget: Budget):
        self._file, self._budget, self.size = file, budget, size

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{kinds}", self._take(struct.calcsize(f"<{kinds}")))

    def text(self) -> str:
        (count,) = self.numbers("Q")
        self._budget.objects(count)
        return self._take(count).decode()

    def value(self, kind: int) -> Any:
        """Read an entry's value; None for a long list."""
        self._budget.objects(_ENTRY)
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            (number,) = self.numbers(_NUMBERS[kind])
            return float(str(np.float32(number))) if kind == 6 else number
        kind, count = self.numbers("IQ")
        if kind == _TEXT:
            return [self.text() for _ in range(count)] if count <= _LONGEST else self._pass(count)
        if count > _LONGEST:
            self._file.seek(count * struct.calcsize(f"<{_NUMBERS[kind]}"), 1)
            return None
        return list(self.numbers(f"{count}{_NUMBERS[kind]}"))

    def tensor(self) -> tuple[list[int], int, int]:
        """Read a tensor's shape, slowest axis first, its type, and the offset of its values."""
        self._budget.objects(_ENTRY)
        (axes,) = self.numbers("I")
        *lengths, kind, offset = self.numbers(f"{min(axes, 64)}QIQ")
        return lengths[::-1], kind, offset

    def _pass(self, count: int) -> None:
        for _ in range(count):
            self.text()

    def _take(self, count: int) -> bytes:
        if count > self.size - self._file.tell():
            raise WeightsError(f"ends at byte {self.size}, before all that it announces; copy it again")
        return self._file.read(count)


def _straight(tensors: dict[str, Stored]) -> dict[str, Stored]:
    """Exchange the two layers of each MLP where an older converter exchanged their names.

    Raises:
        WeightsError: they are square, so that nothing tells.
    """
    for name in [each for each in tensors if each.endswith(".ffn_up.weight")]:
        rows, columns = tensors[name].shape
        width = tensors.get(name.replace("ffn_up.weight", "ln2.weight"))
        if width is None or columns == width.shape[0] != rows:
            continue
        if rows == columns:
            raise WeightsError(f"{name} is square: nothing tells which of the two layers comes first")
        for leaf in ("weight", "bias"):
            up, down = (
                name.replace("ffn_up.weight", f"{each}.{leaf}") for each in ("ffn_up", "ffn_down")
            )
            tensors[up], tensors[down] = tensors[down], tensors[up]
    return tensors
