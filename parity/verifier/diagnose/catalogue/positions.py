"""Where the rows of a position table go, and how it is fitted to another grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Option
from vit_config.errors import ConfigError, InputError
from vit_config.numerics.resample import RULES, resample_rows

Grid = tuple[int, int]


@dataclass(frozen=True)
class Table:
    """Rows to be added to the tokens."""

    prefix: np.ndarray
    """(p, D), of the first p tokens of all, or of the first p prefix tokens."""
    patches: np.ndarray
    """(N, D), or (0, D) where patches get none."""
    whole: bool = False
    """Whether the rows are added to all tokens in order, wherever the prefix tokens stand."""

    def rows(self, tokens: int, prefix: int, first: bool, width: int) -> np.ndarray:
        """What is added to every token, (T, D), with `prefix` tokens before or after the patches."""
        added = np.zeros((tokens, width))
        if self.whole:
            rows = np.concatenate([self.prefix, self.patches])
            added[: len(rows)] = rows[:tokens]
            return added
        start = prefix if first else 0
        added[start : start + len(self.patches)] = self.patches
        start = 0 if first else tokens - prefix
        count = min(prefix, len(self.prefix))
        added[start : start + count] = self.prefix[:count]
        return added


def table_options(
    table: np.ndarray | None, patches: int, prefix: int, image: Grid | None, said: Any
) -> tuple[Option, ...]:
    """Every way in which a table (R, D) may be added to prefix and patch tokens."""
    none = Option("no positions added", Table(np.zeros((0, 1)), np.zeros((0, 1))), "missing-positions")
    if table is None:
        return (none,)
    extra = len(table) - patches
    if not 0 <= extra <= prefix:
        return (*_resampled(table, patches, prefix, image, said), none)
    head, body = table[:extra], table[extra:]
    empty = body[:0]
    whole = extra == prefix  # one row per token, so in their order wherever the prefix tokens stand
    ordinary = Option(
        "positions added", Table(head, body, whole), torch="x = x + pos_embed", jax="x = x + pos_embed"
    )
    options = [
        ordinary,
        none,
        Option("positions added twice", Table(2 * head, 2 * body)),
        Option("the first rows for the prefix tokens, wherever", Table(head, body)),
        Option("positions shifted by one row forwards", _cut(np.roll(table, 1, 0), extra)),
        Option("positions shifted by one row backwards", _cut(np.roll(table, -1, 0), extra)),
        Option("positions in reverse", Table(head, body[::-1])),
        Option("positions subtracted", Table(-head, -body)),
    ]
    if extra:
        options += [
            Option("positions added to the patches alone", Table(empty, body)),
            Option("the first rows added to the patches", Table(empty, table[:patches])),
            Option("positions added to the prefix alone", Table(head, empty)),
            Option(
                "positions of prefix tokens taken from the end of the table",
                Table(table[patches:], table[:patches]),
            ),
        ]
    for h, w in _grids(patches, image):
        turned = body.reshape(h, w, -1).swapaxes(0, 1).reshape(patches, -1)
        options.append(Option(f"positions column by column of {h}x{w}", Table(head, turned)))
    return tuple(options)


def _cut(table: np.ndarray, prefix: int) -> Table:
    return Table(table[:prefix], table[prefix:])


def _resampled(
    table: np.ndarray, patches: int, prefix: int, image: Grid | None, said: Any
) -> Iterator[Option]:
    for rows in range(prefix, -1, -1):
        for old in _old_grids(len(table) - rows, said):
            for new in _grids(patches, image, edges=True):
                for rule in RULES:
                    try:
                        fitted = resample_rows(table, old, new, rule, rows)
                    except (ConfigError, InputError):
                        continue  # this rule makes no table of that size
                    label = f"positions resampled {old[0]}x{old[1]} to {new[0]}x{new[1]} by {rule}"
                    yield Option(label, _cut(fitted, rows), "position-resampling")


def _old_grids(count: int, said: Any) -> list[Grid]:
    if isinstance(said, (list, tuple)) and len(said) == 2 and said[0] * said[1] == count:
        return [(int(said[0]), int(said[1]))]
    side = math.isqrt(max(count, 0))
    return [(side, side)] if side and side * side == count else list(_grids(count, None, edges=True))


def _grids(count: int, image: Grid | None, *, edges: bool = False) -> Iterator[Grid]:
    """The grids of so many patches, of an image if that is known; with single rows if `edges`."""
    for h in range(1, max(count, 0) + 1):
        w = count // h
        if h * w != count or (not edges and min(h, w) == 1):
            continue
        if image is None or image[0] % h == image[1] % w == 0:
            yield h, w
