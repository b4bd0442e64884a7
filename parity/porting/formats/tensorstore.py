"""Big Vision's checkpoint folders: a zarr array for each tensor, in a folder named after its path.

``checkpoint.bv-000010000/params~img~embedding~kernel`` is ``params/img/embedding/kernel``, and the file
``checkpoint.bv-LAST`` beside the folders names the newest complete one. Shapes and types are read from
the arrays' descriptions; tensorstore, which wrote them, reads their values.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from parity.porting.formats.base import Container, Stored, guarded
from parity.porting.formats.budget import Budget, folder_budget
from parity.porting.formats.flatten import Flat
from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.foreign import parse_json, read_text
from vit_config.files.lasting import lasting
from vit_config.files.stored import checked_shape

DESCRIPTION = ".zarray"
SLASH = "~"
"""Replaces "/" in the names of folders."""
LAST = "-LAST"
_LONGEST_STEP = 1000


def find_last(path: Path) -> Path | None:
    """Find the newest folder of a checkpoint, given its path without a step or the folder of its run.

    Returns:
        The folder; None if there is no ``-LAST`` file.

    Raises:
        MissingFileError: the ``-LAST`` file names a missing folder, or the run has several checkpoints.
    """
    pointers = [path.with_name(path.name + LAST)] if not path.exists() else sorted(path.glob(f"*{LAST}"))
    pointers = [each for each in pointers if each.is_file()]
    if not pointers:
        return None
    if len(pointers) > 1:
        names = ", ".join(each.name.removesuffix(LAST) for each in pointers)
        raise MissingFileError(f"{path}: several checkpoints, {names}; give one of them")
    step = read_text(pointers[0], _LONGEST_STEP).strip()
    folder = pointers[0].with_name(f"{pointers[0].name.removesuffix(LAST)}-{step}")
    if "/" in step or not folder.is_dir():
        raise MissingFileError(f"{folder}: no such folder, but {pointers[0].name} names it")
    return folder


def is_tensorstore(folder: Path) -> bool:
    """Return whether a folder holds zarr arrays, each in its own folder."""
    return any((each / DESCRIPTION).is_file() for each in folder.iterdir() if each.is_dir())


def read_tensorstore(folder: Path) -> Container:
    """Open the arrays of a folder; an array is read when it is loaded.

    Raises:
        MissingFileError: tensorstore is not installed.
        WeightsError: the checkpoint is damaged.
    """
    budget, folder = folder_budget(folder), lasting(folder)
    flat = Flat("/", budget)
    for place in sorted(folder.iterdir()):
        if (place / DESCRIPTION).is_file():
            with guarded(place, "zarr array"):
                flat.add(place.name.replace(SLASH, "/"), _stored(place, budget))
    return Container(folder, (folder,), "tensorstore", flat.tensors, flat.objects)


def _stored(place: Path, budget: Budget) -> Stored:
    described = parse_json(read_text(place / DESCRIPTION))
    name = described["dtype"]
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    shape = checked_shape(described["shape"], dtype.itemsize)
    cuts = checked_shape(described["chunks"], dtype.itemsize)
    chunks = [math.ceil(side / cut) for side, cut in zip(shape, cuts, strict=True)]
    of_chunk = math.prod(cuts) * dtype.itemsize

    def load() -> np.ndarray:
        budget.values(of_chunk)  # tensorstore unpacks whole chunks, even if the array needs a part
        return _load(place, shape, dtype, math.prod(chunks))

    return Stored(shape, dtype, load)


def _load(place: Path, shape: tuple[int, ...], dtype: np.dtype, chunks: int) -> np.ndarray:
    store = _tensorstore(place)
    there = sum(each.name != DESCRIPTION for each in place.iterdir())
    if there < chunks:  # tensorstore would take a missing chunk for zeros
        raise WeightsError(f"{place}: {there} of {chunks} chunks are there; copy the checkpoint again")
    with guarded(place, "zarr array"):
        kvstore = {"driver": "file", "path": str(place.absolute())}
        array = np.asarray(store.open({"driver": "zarr", "kvstore": kvstore}).result().read().result())
    if array.shape != shape or array.dtype != dtype:
        raise WeightsError(f"{place}: is {array.dtype} of shape {array.shape}, not as it says of itself")
    return np.ascontiguousarray(array).reshape(shape)


def _tensorstore(place: Path) -> Any:
    try:
        import tensorstore
    except ImportError as error:
        raise MissingFileError(
            f"{place.parent}: a folder of tensorstore, which takes it to read ({error});"
            " pip install 'vit-parity[jax]'"
        ) from None
    return tensorstore
