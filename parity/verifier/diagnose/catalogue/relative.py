"""A bias of the attention logits that a table holds for each offset between two tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.segment import Segment
from vit_config.numerics.tables import count_relative_positions, relative_position_index

_DIRECTIONS = (
    Option("offsets from query to key", "query", torch="table[index]", jax="table[index]"),
    Option("offsets from key to query", "key", torch="table[index.T]", jax="table[index.T]"),
    Option("offsets between patches alone from key to query", "patches"),
)


def computations(segment: Segment) -> Iterator[Computation]:
    """A table (R, h), of which each pair of tokens takes a row (arXiv 2106.08254): (h, T, T)."""
    shape = segment.result.shape
    if len(segment.parameters) != 1 or segment.children or len(shape) < 3 or shape[-1] != shape[-2]:
        return
    (table,) = segment.parameters.values()
    if table.ndim != 2 or shape[-1] ** 2 * table.shape[1] != segment.result.size:
        return
    for prefix, unused in ((1, 0), (0, 3)):  # with a class token, whose rows are the last three, or not
        grids = tuple(
            Option(f"patches of {h}x{w}", relative_position_index((h, w))[1 - prefix :, 1 - prefix :])
            for h, w in _grids(segment, shape[-1] - prefix)
            if count_relative_positions((h, w)) - unused == len(table)
        )
        if not grids:
            continue

        def compute(v: Values, prefix: int = prefix) -> np.ndarray:
            rows = v["grid"]
            if v["direction"] == "key":
                rows = rows.T
            elif v["direction"] == "patches":
                rows = rows.copy()
                rows[prefix:, prefix:] = rows[prefix:, prefix:].T.copy()
            return table[rows].transpose(2, 0, 1).reshape(shape)

        directions = (
            _DIRECTIONS if prefix else _DIRECTIONS[:2]
        )  # without a class token the last two agree
        aspects = (
            Aspect("grid", "attention-bias", grids),
            Aspect("direction", "attention-bias", directions),
        )
        yield Computation("relative positions", aspects, compute)


def _grids(segment: Segment, patches: int) -> list[tuple[int, int]]:
    """The grids of so many patches, first the one that the module says it has, then the squarest."""
    found = [(h, patches // h) for h in range(1, patches + 1) if patches % h == 0]
    said = segment.fact("grid", "window_size", "grid_size")
    said = tuple(said) if isinstance(said, (list, tuple)) else ()
    return sorted(found, key=lambda grid: (grid != said, abs(grid[0] - grid[1])))
