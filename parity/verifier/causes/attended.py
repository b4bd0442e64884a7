"""Attention along another axis: over the images of a batch in the place of the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from parity.measure.nearness import LEAST
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.search.exchange import closer, outside
from parity.verifier.search.layouts import layout_changes
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 1 << 18
"""Most numbers of queries, of which attention is tried in every way."""
MOST_MOVES = 6
"""Most moves of a value that are followed back."""
_SOFTMAX = frozenset(["exp", "softmax", "_softmax"])


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise attention of A's own queries, keys and values along another axis of them."""
    if not all(_has_softmax(region) for region in (gap.a, gap.b)) or gap.value_a.size > LARGEST:
        return None
    for q, k, v in permutations(_read_by_both(gap), 3):
        ways = list(_ways(q.shape))
        of_a = next((way for way in ways if _is(gap.value_a, q, k, v, way, gap.error)), None)
        if of_a is None:
            continue
        of_b = next((way for way in ways if _is(gap.value_b, q, k, v, way, gap.error)), None)
        if of_b is not None and of_b[0] != of_a[0]:
            lengths = q.shape[of_b[0]], q.shape[of_a[0]]
            return "attention along another axis", (
                f"over axis {of_b[0]}, of length {lengths[0]}, of queries {list(q.shape)},"
                f" A's over axis {of_a[0]}, of length {lengths[1]}"
            )
    return None


def _has_softmax(region: Region) -> bool:
    return any(region.program.operations[i].name in _SOFTMAX for i in region.operations)


def _read_by_both(gap: Gap) -> list[np.ndarray]:
    """Return the values that both sides read in some layout, as many numbers as the attention has, with
    the axes apart that one side has merged, and in one order of them."""
    own, others = (_layouts_read(region, gap.value_a.size) for region in (gap.a, gap.b))
    found: list[np.ndarray] = []
    for layouts in own:
        ways = [(x, split) for x in layouts for each in others for y in each for split in _between(x, y)]
        if ways:
            x, split = max(ways, key=lambda way: sum(n > 1 for n in way[1]))
            found.append(x.reshape([n for n in split if n > 1]))
    found = [each for each in found if sorted(each.shape) == sorted(found[0].shape)]
    shape = found[0].shape if found else ()
    return [
        each.transpose(order)
        for each in found
        for order in permutations(range(len(shape)))
        if tuple(each.shape[i] for i in order) == shape
    ]


def _layouts_read(region: Region, size: int) -> list[list[np.ndarray]]:
    """Return each value of so many numbers that a region reads, and the layouts that it had before."""
    program, found = region.program, []
    for index in outside(region):
        chain = [index]
        while (op := program.operations[chain[-1]]).is_layout and op.inputs and len(chain) < MOST_MOVES:
            chain.append(op.inputs[0])
        values = [np.asarray(each) for each in program.values(chain).values()]
        found.append([each for each in values if each.dtype.kind == "f" and each.size == size])
    return [each for each in found if each]


def _between(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Yield the shapes into which one value is split where the other is made of it."""
    for change in layout_changes(x.shape, y.shape):
        if distance(change.of(x), y) <= LEAST.norm:
            yield change.split


def _ways(shape: tuple[int, ...]) -> Iterator[tuple[int, int, float]]:
    """Yield axes of tokens and of channels, and what logits are multiplied by."""
    for tokens, channels in permutations(range(len(shape)), 2):
        yield tokens, channels, 1.0
        yield tokens, channels, shape[channels] ** -0.5


def _is(
    wanted: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    way: tuple[int, int, float],
    error: float,
) -> bool:
    """Return whether a value is this attention, in any order of its numbers."""
    tokens, channels, scale = way
    q, k, v = (np.moveaxis(each, (tokens, channels), (-2, -1)) for each in (q, k, v))
    logits = q @ k.swapaxes(-1, -2) * scale
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    out = weights / weights.sum(-1, keepdims=True) @ v
    return closer(np.sort(wanted, axis=None), np.sort(out, axis=None), error)


CAUSES = (
    Cause(
        "attention along another axis",
        "B's tokens attend along another axis than A's, as to the other images of the batch.",
        judge,
        "(nn.softmax((x @ w) @ (x @ v).swapaxes(1, 2)) @ x) @ v",
        "jnp.einsum('qkb,kbd->qbd', nn.softmax(jnp.einsum('qbd,kbd->qkb', x @ w, x @ v), 1), x) @ v",
    ),
)
