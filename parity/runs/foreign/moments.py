"""Conversion of moments from a library's names and layouts to ours, by the rows of the parameters.

Rows only split, join and transpose, so a moment is converted like its parameter. The exception is a row
with zeros that the twins do not have: the moments there would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.porting.dialects.table import Bound
from parity.porting.dialects.transfer import read
from parity.porting.formats.base import Stored
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.recognition.matching import match
from parity.porting.recognition.recognise import Model
from parity.runs.foreign.optimizer import OptimizerState
from parity.runs.state import ADAM, SGD, Arrays
from vit_config.errors import CheckpointError, WeightsError
from vit_config.parameters import parameters

KEYS = (*ADAM, *SGD, "step")
"""Entries that torch's AdamW, Adam and SGD keep for a parameter."""


def rows_of(checkpoint: Checkpoint) -> list[Bound]:
    """Return the rows by which a checkpoint's parameters were read.

    Raises:
        CheckpointError: a row drops zeros that the twins do not have.
    """
    bound = match(Model(checkpoint.dialect, "", checkpoint.tensors, "")).bound
    for one in bound:
        if None in one.ours:
            raise CheckpointError(
                f"{one.theirs[0]}: part of it is zeros that the twins do not have, so its moments cannot"
                " be carried"
            )
    return bound


def read_arrays(checkpoint: Checkpoint, tensors: Mapping[str, Stored], bound: Sequence[Bound]) -> Arrays:
    """Convert parameters or moments by the library's names to ours; half precision becomes float32.

    Raises:
        WeightsError: a tensor's shape is not that of its parameter.
    """
    stored = {name: each for name, each in read(bound, tensors).items() if 0 not in each.shape}
    arrays = {}
    for name, (shape, _) in parameters(checkpoint.config).items():
        if stored[name].shape != shape:
            raise WeightsError(f"{name} has shape {stored[name].shape}, expected {shape}")
        arrays[name] = widened(stored[name].load())
    return arrays


def widened(array: np.ndarray) -> np.ndarray:
    """Return a copy of the array in float32, or its wider type."""
    return np.array(array, np.promote_types(array.dtype, np.float32), copy=True, order="C")


def read_moments(
    optimizer: OptimizerState,
    names: Mapping[int, str],
    moments: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    cold: bool,
) -> tuple[dict[str, dict[str, Stored]], list[str]]:
    """Return each moment by the library's names, and the names of parameters that start cold.

    Raises:
        CheckpointError: the optimiser keeps unknown entries, or a moment is missing and `cold` is not
            set.
    """
    by_moment: dict[str, dict[str, Stored]] = {moment: {} for moment in moments}
    missing = []
    for index, name in names.items():
        state: Mapping[str, Any] = optimizer.state.get(index, {})
        if strange := sorted(key for key in state if key not in KEYS):
            raise CheckpointError(
                f"the optimiser keeps {strange[0]} of {name}; it is none of torch's AdamW, Adam and SGD"
            )
        for moment in moments:
            value = state.get(moment)
            if isinstance(value, Stored):
                by_moment[moment][name] = value
                continue
            if not cold:
                kind = "SGD" if moment in SGD else "Adam"
                raise CheckpointError(
                    f"{name} has no {moment}: {kind} would start cold; give --cold to allow it"
                )
            by_moment[moment][name] = Stored.of(np.zeros(shapes[name], np.float32))
            missing += [] if name in missing else [name]
    return by_moment, missing
