"""From patch tokens to the first block: prefix tokens joined, positions added."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.positions import Table, table_options
from parity.verifier.diagnose.catalogue.tensors import sources
from parity.verifier.diagnose.segment import Segment

_POSITIONS = r"pos|position"
_PREFIX = r"cls|class|dist|reg|token|prefix"
_ORDER = (r"cls|class", r"dist", r"reg")


def computations(segment: Segment) -> Iterator[Computation]:
    """Prefix tokens and patch tokens side by side, with a table of positions added: (B, P + N, D)."""
    result = segment.result
    if result.ndim != 3 or not segment.parameters:
        return
    B, T, D = result.shape
    tables = [
        _rows(w, D) for name, w in segment.parameters.items() if re.search(_POSITIONS, name.lower())
    ]
    tables = [w for w in tables if w is not None]
    prefix = _prefix(segment, D)
    if len(tables) > 1 or not (tables or prefix):
        return
    for _, x in sources(segment):
        if (
            x.ndim not in (3, 4)
            or x.shape[-1] != D
            or len(x) != B
            or x[0].size // D > T
            or (x.shape == (B, T, D) and prefix)
        ):
            continue
        count = x[0].size // D
        table = tables[0] if tables else None
        images = segment.before.get("in")
        size = images.shape[1:3] if images is not None and images.ndim == 4 else None
        options = table_options(table, count, T - count, size, segment.fact("grid", "grid_size"))
        yield _assembly(segment, x, prefix, options)
        return


def _rows(w: np.ndarray, width: int) -> np.ndarray | None:
    """(1, n, D) or (D,) to (n, D)."""
    return w.reshape(-1, width) if w.size % width == 0 and w.shape[-1] == width else None


def _prefix(segment: Segment, width: int) -> dict[str, np.ndarray]:
    found = {}
    for name, w in segment.parameters.items():
        lower = name.lower()
        if re.search(_PREFIX, lower) and not re.search(f"{_POSITIONS}|mask", lower):
            rows = _rows(w, width)
            if rows is not None and len(rows) <= 64:
                found[name] = rows
    order = lambda name: next((i for i, p in enumerate(_ORDER) if re.search(p, name.lower())), 9)  # noqa: E731
    return {name: found[name] for name in sorted(found, key=order)}


def _assembly(
    segment: Segment, x: np.ndarray, prefix: dict[str, np.ndarray], positions: tuple[Option, ...]
) -> Computation:
    B, T, D = segment.result.shape
    places = (
        Option(
            "prefix tokens first",
            "first",
            torch="torch.cat([prefix, x], dim=1)",
            jax="jnp.concatenate([prefix, x], axis=1)",
        ),
        Option("prefix tokens last", "last"),
        *_moved(prefix),
    )
    orders = [Option("patches row by row", x.reshape(B, -1, D))]
    if x.ndim == 4:
        orders.append(Option("patches column by column", x.swapaxes(1, 2).reshape(B, -1, D)))
    elif x.shape[1] > 2:
        orders.append(Option("patches in reverse", x[:, ::-1]))
    factors = (
        Option("patches as they are", 1.0),
        Option("patches times sqrt(D)", D**0.5),
        Option("patches / sqrt(D)", D**-0.5),
    )
    aspects = (
        Aspect("prefix", "prefix-tokens", tuple(_joined(prefix, T - x[0].size // D))),
        Aspect("place", "prefix-place", places if prefix else places[:1]),
        Aspect("positions", "positions", positions),
        Aspect("order", "patch-order", tuple(orders)),
        Aspect("factor", "embedding-scale", factors),
    )

    def compute(v: Values) -> np.ndarray | None:
        patches = v["order"] * v["factor"]
        tokens = (
            np.zeros((0, D))
            if not v["prefix"]
            else np.concatenate([prefix[name] for name in v["prefix"]])
        )
        tokens = np.broadcast_to(tokens, (B, *tokens.shape))
        if tokens.shape[1] + patches.shape[1] != T:
            return None
        placed: Table = v["positions"]
        first = v["place"] != "last"
        joined = np.concatenate([tokens, patches] if first else [patches, tokens], axis=1)
        joined = joined + placed.rows(T, tokens.shape[1], first, D)
        return np.roll(joined, -v["place"], axis=1) if isinstance(v["place"], int) else joined

    return Computation("tokens", aspects, compute)


def _moved(prefix: dict[str, np.ndarray]) -> Iterator[Option]:
    """The first prefix tokens moved after the patches after positions were added; how many rows."""
    names, rows = [], 0
    for name, tokens in prefix.items():
        names.append(name)
        rows += len(tokens)
        yield Option(f"{', '.join(names)} moved after the patches, with positions", rows)


def _joined(prefix: dict[str, np.ndarray], rows: int) -> Iterator[Option]:
    """Which prefix tokens there are, in which order; those first that fill the rows."""
    names = tuple(prefix)
    chosen = [
        order
        for n in range(len(names), -1, -1)
        for part in combinations(names, n)
        for order in permutations(part)
    ]
    fitting = [c for c in chosen if sum(len(prefix[name]) for name in c) == rows]
    for names in fitting or [()]:
        yield Option(f"prefix {', '.join(names)}" if names else "no prefix tokens", names)
