"""Tensors in a file whose bytes are not read yet, and the errors of reading them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 and float8 with numpy
import numpy as np

from vit_config.errors import ConfigError, MissingFileError, WeightsError, about, one_line

_LONGEST_REASON = 300
_PANIC = "PanicException"
"""What a library in Rust raises where it gives up, which is no `Exception`."""
_MOST_BYTES = 2**48
PIECE = 2**18
"""Bytes that stay in the processor's cache between reading, checking, hashing and writing."""


@dataclass(frozen=True)
class Extent:
    """The `load` of a tensor whose bytes lie in a file as they do in memory, so that they can be read
    piece by piece, in the processor's cache.

    It is not a field of `Stored`, since code that changes the loaded values could forget to remove it.
    """

    path: Path
    begin: int
    """Place of the first byte, counted from the start of the file."""
    load: Callable[[], np.ndarray]
    passes: Callable[[np.ndarray], bool] = lambda values: True
    """Whether `load` would accept these values; called with each piece."""

    def __call__(self) -> np.ndarray:
        """Load the whole tensor."""
        return self.load()

    def pieces(self, dtype: np.dtype, nbytes: int) -> Iterator[np.ndarray]:
        """Yield the tensor's values in order, one-dimensional; every piece takes the same memory.

        Args:
            dtype: the tensor's type.
            nbytes: the size of all its values.

        Raises:
            WeightsError: the error that `load` raises, or that the file changed if it raises none.
        """
        memory = np.empty(min(PIECE, nbytes), np.uint8)
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self.begin)
            for done in range(0, nbytes, PIECE):
                piece = memory[: nbytes - done]
                if file.readinto(piece.data) != piece.size or not self.passes(piece.view(dtype)):
                    break
                yield piece.view(dtype)
            else:
                return
        self.load()  # raises the precise error
        raise WeightsError(f"{self.path}: changed while it was read; wait until it is whole")


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: its description in the header, and a way to read it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    """Type in this machine's byte order; of ml_dtypes for bfloat16 and float8."""
    load: Callable[[], np.ndarray]
    """Reads the tensor: a fresh or read-only array in C order. WeightsError: its bytes are damaged."""

    @property
    def nbytes(self) -> int:
        """Size of the tensor's values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def of(cls, array: np.ndarray) -> Stored:
        """Wrap an array in memory, which must not change afterwards."""
        array = np.asarray(array, dtype=np.asarray(array).dtype.newbyteorder("="), order="C")
        view = array.view()
        view.flags.writeable = False
        return cls(view.shape, view.dtype, lambda: view)


@lru_cache
def type_name(dtype: np.dtype) -> str:
    """Return numpy's name of a type, which numpy composes anew at each call."""
    return dtype.name


def checked_shape(shape: Any, itemsize: int) -> tuple[int, ...]:
    """Check a shape read from a file: numpy must be able to hold such an array.

    Raises:
        ValueError: the shape is not a list of lengths, has more than 64 of them, or is beyond
            2^48 bytes.
    """
    lengths = counts(shape)
    if len(lengths) > 64 or math.prod(each for each in lengths if each) * itemsize > _MOST_BYTES:
        raise ValueError(f"a shape of {len(lengths)} lengths, {str(lengths)[:80]}, which is too large")
    return lengths


def counts(values: Any) -> tuple[int, ...]:
    """Check a list of numbers read from a file: lengths, strides or offsets.

    Raises:
        ValueError: the value is not a list of whole numbers from 0 to 2^48.
    """
    if not isinstance(values, list | tuple):
        raise ValueError("expected a list of dimensions")
    if any(type(each) is not int or not 0 <= each <= _MOST_BYTES for each in values):
        raise ValueError("a shape in which one length is not a whole number from 0 on")
    return tuple(values)


@contextmanager
def guarded(path: object, what: str) -> Iterator[None]:
    """Turn every error inside into a WeightsError of one line that names the file.

    Files come from strangers: any parser error means a damaged file, not a fault of this program.

    Args:
        path: the path, or whatever messages are to name in its place.
        what: the kind of file, as in "damaged safetensors file".
    """
    try:
        yield
    except (ConfigError, MissingFileError, ModuleNotFoundError):  # no fault of the file, or told already
        raise
    except WeightsError as error:
        raise WeightsError(about(str(path), error)) from None
    except OSError as error:
        reason = error.strerror or error
        raise WeightsError(one_line(f"{path}: cannot be read as a {what} ({reason})")) from None
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        reason = f"{type(error).__name__}: {str(error)[:_LONGEST_REASON]}"
        raise WeightsError(
            one_line(f"{path}: damaged or truncated {what} ({reason}); copy it again")
        ) from None
