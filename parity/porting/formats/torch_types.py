"""PyTorch's storages and tensors in files: types, views into bytes, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from parity.porting.formats.inert import Global, Refused, describe_value
from parity.porting.formats.numpy_pickles import ML_TYPES
from vit_config.files.stored import Stored, checked_shape, counts

_EXPANDED = 2**30
"""Most bytes that a tensor may have beyond its storage's (an expanded tensor repeats values)."""

DTYPES: dict[str, np.dtype] = {
    **{name: np.dtype(name) for name in (
        "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
        "uint64", "bool", "complex64", "complex128",
    )},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in ML_TYPES},
}  # fmt: skip
"""PyTorch's types that numpy, with ml_dtypes, has too, under the same names."""

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}
"""Element types of PyTorch's storage classes."""


@dataclass(eq=False)
class Storage:
    """Bytes in a file that tensors are views of."""

    dtype: np.dtype
    nbytes: int
    read: Callable[[int, int], np.ndarray]
    """``read(begin, end)`` returns these bytes as a new uint8 array."""
    swapped: bool = False
    """Whether a machine of the other byte order wrote the bytes."""

    def whole(self) -> View:
        """Return the whole storage as a tensor of one axis."""
        return View(self, self.dtype, 0, (self.nbytes // self.dtype.itemsize,), (1,))


@dataclass(eq=False)
class View:
    """A tensor as a view of a storage; offset and strides are counted in elements."""

    storage: Storage
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def stored(self) -> Stored:
        """Return the tensor without reading its bytes."""
        return Stored(self.shape, self.dtype, self._load)

    def _load(self) -> np.ndarray:
        size = self.dtype.itemsize
        count = math.prod(self.shape)
        begin, end = self.offset * size, (self.offset + _extent(self.shape, self.stride)) * size
        content = self.storage.read(begin, end)
        if self.storage.swapped:
            words = content.view(f"u{_word(self.dtype)}")
            words.byteswap(inplace=True)
        values = content.view(self.dtype)
        if count == 0 or _is_contiguous(self.shape, self.stride):
            return values.reshape(self.shape)
        steps = [each * size for each in self.stride]
        return np.lib.stride_tricks.as_strided(values, self.shape, steps).copy(order="C")


def make_view(storage: Any, offset: Any, shape: Any, stride: Any, dtype: np.dtype | None = None) -> View:
    """Build the result of ``torch._utils._rebuild_tensor``.

    Raises:
        ValueError, TypeError: the tensor would lie outside its storage.
    """
    if not isinstance(storage, Storage):
        raise TypeError("a tensor without a storage")
    dtype = dtype or storage.dtype
    shape, stride = checked_shape(shape, dtype.itemsize), counts(stride)
    (offset,) = counts((offset,))
    if len(shape) != len(stride):
        raise ValueError(f"a tensor of shape {shape} with strides {stride}")
    end = (offset + _extent(shape, stride)) * dtype.itemsize
    if end > storage.nbytes and 0 not in shape:
        raise ValueError(
            f"a tensor of shape {shape} that ends at byte {end} of a storage of {storage.nbytes}"
        )
    size = math.prod(shape) * dtype.itemsize
    if size > storage.nbytes + _EXPANDED:
        raise ValueError(f"a tensor of {size} bytes expanded from a storage of {storage.nbytes}")
    return View(storage, dtype, offset if 0 not in shape else 0, shape, stride)


def torch_dtype(value: Any) -> np.dtype | None:
    """Return the type that a global such as ``torch.bfloat16`` names, or None if numpy lacks it."""
    known = isinstance(value, Global) and value.module == "torch"
    return DTYPES.get(value.name) if known else None


def storage_dtype(value: Any) -> np.dtype | Refused:
    """Return the element type of a storage class such as ``torch.FloatStorage``."""
    if not isinstance(value, Global) or value.name not in STORAGES:
        return Refused(f"a tensor of {describe_value(value)}, which no array of numpy can hold")
    return DTYPES[STORAGES[value.name]]


def _extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Return the number of elements of the storage that a tensor spans."""
    if 0 in shape:
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for length, step in zip(reversed(shape), reversed(stride), strict=True):
        if length != 1 and step != expected:
            return False
        expected *= length
    return True


def _word(dtype: np.dtype) -> int:
    """Return the size of the words whose bytes are swapped: a complex number is two words."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
