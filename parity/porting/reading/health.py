"""Search for oddities in weights: every value is read once, at about the speed of copying the file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from parity.porting.formats.base import Progress, Stored
from parity.porting.reading.anomalies import not_finite
from vit_config.files.safetensors_stream import ignore
from vit_config.files.stored import PIECE

FAR = 10.0
"""Largest ratio, either way, of the length of a position's row to the median length."""
SPREAD = 1.5
"""Largest ratio of the spread of a drawn head's rows in size to that by chance."""
FEW = 256
"""Fewest weights of which one grows beyond the bound of its draw in the first steps of training."""


def anomalies(arrays: Mapping[str, Stored], progress: Progress = ignore) -> Iterator[str]:
    """Yield a sentence for each oddity of a model's tensors, by the twins' names.

    Values that are not finite; matrices, channels and positions that are zero or hold one value; rows of
    the position table that are far longer or shorter than the others; blocks that are copies of another;
    a head that is still as it was drawn. One tensor is in memory at a time.

    Args:
        progress: called with the size of each tensor in bytes, once it was looked at.

    Raises:
        WeightsError: a tensor that cannot be read.
    """
    blocks: dict[int, list[bytes]] = defaultdict(list)
    for name, stored in arrays.items():
        values = stored.load()
        scan = _look(values)
        yield from (f"{name}: {each}" for each in _of_tensor(name, values, scan, arrays))
        if inside := re.match(r"blocks\.(\d+)\.", name):
            blocks[int(inside[1])].append(scan.sizes.tobytes())
        progress(values.nbytes)
    first: dict[tuple[bytes, ...], int] = {}
    for number, prints in blocks.items():
        earlier = first.setdefault(tuple(prints), number)
        if earlier != number and _same(arrays, earlier, number):
            yield f"blocks.{number}: a copy of blocks.{earlier}, value by value"


@dataclass(frozen=True)
class _Scan:
    """The results of one pass over a matrix (rows, columns), from the bits of its values."""

    bits: np.ndarray
    finite: bool
    sizes: np.ndarray
    """Bits of the largest magnitude of each row; 0: the row is zero."""
    columns: np.ndarray
    """The same of each column."""


def _look(values: np.ndarray) -> _Scan:
    """Look at every value, in the processor's cache: the bits of a number without its sign are in the
    order of its magnitude, also of types that numpy computes slowly with."""
    bits = np.ascontiguousarray(_rows(values)).view(f"u{values.dtype.itemsize}")
    kind = bits.dtype.type
    magnitude = kind(2 ** (8 * values.dtype.itemsize - 1) - 1)
    sizes, columns = np.zeros(len(bits), kind), np.zeros(bits.shape[1], kind)
    step = max(1, PIECE // max(1, bits.shape[1] * values.dtype.itemsize))
    for begin in range(0, len(bits), step):
        part = bits[begin : begin + step] & magnitude
        part.max(axis=1, initial=0, out=sizes[begin : begin + step])
        np.maximum(columns, part.max(axis=0), out=columns)
    whole = values.dtype.kind in "iub"
    finite = whole or bool((sizes < np.array(np.inf, values.dtype).view(kind)).all())
    return _Scan(bits, finite, sizes, columns)


def _rows(values: np.ndarray) -> np.ndarray:
    """Return a tensor as a matrix: of a table (1, N, D) a row for each position, of all others one for
    each output channel."""
    if values.ndim < 2:
        return values.reshape(1, -1)
    return values.reshape(-1, values.shape[-1]) if values.ndim == 3 else values.reshape(len(values), -1)


def _of_tensor(
    name: str, values: np.ndarray, scan: _Scan, arrays: Mapping[str, Stored]
) -> Iterator[str]:
    """Yield what is odd about one tensor."""
    if not scan.finite:
        if problem := not_finite(name, values):
            yield problem
        return
    head = name.startswith("head") and name.endswith("weight")
    matrix = values.ndim > 1 and values.size > 1
    if not scan.sizes.any():
        if head:
            yield "all zero, so the logits are the same for every image; train the head first"
        elif matrix:
            yield "all zero"
        return
    if (
        values.ndim == 1
        and name.endswith(".weight")
        and (zeros := values.size - np.count_nonzero(values))
    ):
        yield f"{zeros} of {values.size} channels are zero, so nothing of them passes"
    if not matrix:
        return
    bits = scan.bits
    if len(bits) > 1 and (bits[0] == bits[1]).all() and (bits == bits[0]).all():
        yield "every row is the same"
        return
    rows, columns = (
        ("positions", "channels") if values.ndim == 3 else ("output channels", "input channels")
    )
    yield from _counted(np.flatnonzero(scan.sizes == 0), len(bits), rows, "zero")
    yield from _counted(np.flatnonzero(scan.columns == 0), bits.shape[1], columns, "zero")
    if bits.shape[1] > 1:
        likely = np.flatnonzero((bits[:, 0] == bits[:, 1]) & (scan.sizes > 0))
        stuck = [int(row) for row in likely if (bits[row] == bits[row, 0]).all()]
        yield from _counted(stuck, len(bits), rows, "stuck at one value")
    if name.endswith("pos_embed"):
        yield from _far_rows(values.reshape(len(bits), -1))
    if head and values.ndim == 2 and _as_drawn(values, arrays.get(name.replace("weight", "bias"))):
        yield "as it was drawn: every class has weights of one size; train the head first"


def _counted(indices: np.ndarray | list[int], count: int, what: str, how: str) -> Iterator[str]:
    if len(indices):
        yield f"{len(indices)} of {count} {what} are {how}, the first is {indices[0]}"


def _far_rows(rows: np.ndarray) -> Iterator[str]:
    """Yield the rows of a position table whose lengths are far from the others'."""
    lengths = np.linalg.norm(rows.astype(np.float32), axis=1)
    median = float(np.median(lengths))
    for row in np.flatnonzero((lengths > FAR * median) | ((lengths < median / FAR) & (lengths > 0))):
        yield f"row {row} has length {lengths[row]:.3g}, and half of the rows less than {median:.3g}"


def _as_drawn(weight: np.ndarray, bias: Stored | None) -> bool:
    """Return whether a head's rows differ in size, and from zero in the mean, as numbers drawn from one
    distribution do, and its bias is zero, or drawn as `torch.nn.Linear` draws both."""
    classes, width = weight.shape
    if classes < 8 or width < 8:
        return False
    wide = weight.astype(np.float32)
    if bias is not None and (offsets := bias.load().astype(np.float32)).any():
        bound, rounded = width**-0.5, 2.0 ** (-8 if weight.dtype.itemsize == 2 else -20)
        if wide.size < FEW or max(np.abs(wide).max(), np.abs(offsets).max()) > bound * (1 + rounded):
            return False
        uneven = np.abs(np.sqrt(3) * wide.std() / bound - 1)  # 0 if spread evenly up to the bound
        return bool(uneven < 2 / np.sqrt(wide.size) + rounded)
    spreads, means = wide.std(axis=1), wide.mean(axis=1)
    whole = float(wide.std())
    by_chance = 1 / np.sqrt(2 * width)
    return bool(
        spreads.std() < SPREAD * by_chance * whole and means.std() < SPREAD * whole / np.sqrt(width)
    )


def _same(arrays: Mapping[str, Stored], one: int, other: int) -> bool:
    """Return whether two blocks hold the same values."""
    names = [name for name in arrays if name.startswith(f"blocks.{one}.")]
    pairs = ((name, name.replace(f".{one}.", f".{other}.", 1)) for name in names)
    return all(
        b in arrays and np.array_equal(arrays[a].load(), arrays[b].load(), equal_nan=False)
        for a, b in pairs
    )
