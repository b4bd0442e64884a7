"""Numpy's arrays, scalars and types, built from their pickles."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np

from parity.porting.formats.inert import Global, NumpyArray, NumpyType, describe_value
from vit_config.errors import WeightsError
from vit_config.files.stored import checked_shape

_PLAIN = re.compile(r"[<>|=]?([biufcSUV])(\d{0,7})")
ML_TYPES = (
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""Types of checkpoints that numpy lacks and ml_dtypes has."""
SAVE = "save the tensors without it"


def make_type(name: Any, *_: Any) -> NumpyType:
    """Build the result of ``numpy.dtype(name, align, copy)``."""
    if isinstance(name, Global) and name.module == "ml_dtypes" and name.name in ML_TYPES:
        return NumpyType(np.dtype(getattr(ml_dtypes, name.name)))
    if not isinstance(name, str) or not _PLAIN.fullmatch(name):
        raise WeightsError(
            f"holds a numpy array of type {describe_value(name)}, which is not read; {SAVE}"
        )
    return NumpyType(np.dtype(name))


def set_type(target: NumpyType, state: Any) -> None:
    """Set a type's byte order and, if the type has no fixed size, its size."""
    _, order, subtype, names, fields, size, *_ = state
    if subtype is not None or names is not None or fields is not None:
        raise WeightsError(f"holds a structured numpy array, which is not read; {SAVE}")
    order = order.decode() if isinstance(order, bytes) else order
    kind = target.dtype.kind
    if kind in "SUV" and target.dtype.name not in ML_TYPES and size >= 0:
        unit = 4 if kind == "U" else 1
        target.dtype = np.dtype(f"{kind}{size // unit}")
    if order in ("<", ">"):
        target.dtype = target.dtype.newbyteorder(order)
    elif order not in ("|", "="):
        raise TypeError("a numpy type without a byte order")


def set_array(target: NumpyArray, state: Any) -> None:
    """Set the contents of an array that `_reconstruct` created."""
    _, shape, dtype, fortran, data = state
    target.array = _filled(data, dtype, shape, bool(fortran))


def from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> NumpyArray:
    """Build the result of ``numpy.core.numeric._frombuffer``, used by protocol 5."""
    return NumpyArray(_filled(data, dtype, shape, order == "F"))


def make_scalar(dtype: Any, data: Any = b"") -> Any:
    """Return the number that ``numpy.core.multiarray.scalar`` makes."""
    return _filled(data, dtype, (), False)[()].item()


def _filled(data: Any, dtype: Any, shape: Any, fortran: bool) -> np.ndarray:
    if isinstance(data, str):  # bytes of Python 2
        data = data.encode("latin1")
    if not isinstance(data, bytes | bytearray) or not isinstance(dtype, NumpyType):
        raise TypeError("a numpy array that does not consist of plain values")
    kind = dtype.dtype
    shape = checked_shape(shape if isinstance(shape, tuple | list) else (shape,), kind.itemsize)
    if kind.itemsize == 0 or len(data) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"a numpy array of {kind} and shape {shape} with {len(data)} bytes")
    array = np.frombuffer(data, kind).reshape(shape[::-1] if fortran else shape)
    array = array.T if fortran else array
    return np.asarray(array, kind.newbyteorder("="), order="C")
