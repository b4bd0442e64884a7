"""From tokens to one vector: class token, means, maxima, and what is done to the vector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from parity.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.diagnose.catalogue.tensors import sources
from parity.diagnose.segment import Segment

Pool = Callable[[np.ndarray], np.ndarray]
_MOST_PREFIX = 6


def computations(segment: Segment) -> Iterator[Computation]:
    """A vector per image from the tokens (B, T, D) that were seen last, or before."""
    result = segment.result
    if result.ndim not in (2, 3) or (result.ndim == 3 and result.shape[1] != 1):
        return
    tokens = [
        (name, x)
        for name, x in sources(segment)
        if x.ndim == 3 and x.shape[1] > 1 and len(x) == len(result)
    ]
    tokens = [(n, x) for n, x in tokens if result.shape[-1] in (x.shape[2], 2 * x.shape[2])][:4]
    if not tokens:
        return
    rows = min(x.shape[1] for _, x in tokens)
    aspects = (
        Aspect("pool", "pooling", _ordinary_first(segment, rows)),
        Aspect("of", "missing-norm", tuple(Option(f"of {name}", x) for name, x in tokens)),
        Aspect("then", "pre-logits", _THEN),
    )

    def compute(v: Values) -> np.ndarray | None:
        y = v["pool"](v["of"])
        return v["then"](y).reshape(result.shape) if y.size == result.size else None

    yield Computation("pooling", aspects, compute)


_THEN = (
    Option("nothing after it", lambda y: y),
    Option("tanh after it", np.tanh),
    Option("divided by its length", lambda y: y / np.linalg.norm(y, axis=-1, keepdims=True)),
    Option("ReLU after it", lambda y: np.maximum(y, 0.0)),
)


def _options(rows: int) -> list[Option]:
    def mean_from(first: int) -> Pool:
        return lambda x: x[:, first:].mean(axis=1)

    def largest_from(first: int) -> Pool:
        return lambda x: x[:, first:].max(axis=1)

    class_token = Option("the first token", lambda x: x[:, 0], torch="x[:, 0]", jax="x[:, 0]")
    found = [
        class_token,
        Option("the mean of all tokens", mean_from(0), torch="x.mean(1)", jax="x.mean(1)"),
    ]
    for first in range(1, min(_MOST_PREFIX, rows - 1) + 1):
        words = "token" if first == 1 else f"{first} tokens"
        code = f"x[:, {first}:].mean(1)"
        found.append(
            Option(f"the mean without the first {words}", mean_from(first), torch=code, jax=code)
        )
    return [
        *found,
        Option("the largest of all tokens", largest_from(0), torch="x.amax(1)", jax="x.max(1)"),
        Option(
            "the largest without the first token",
            largest_from(1),
            torch="x[:, 1:].amax(1)",
            jax="x[:, 1:].max(1)",
        ),
        Option("the last token", lambda x: x[:, -1]),
        Option("the second token", lambda x: x[:, 1]),
        Option("the mean of the first two tokens", lambda x: x[:, :2].mean(axis=1)),
        Option("first token plus mean of the rest", lambda x: x[:, 0] + x[:, 1:].mean(axis=1)),
        Option(
            "half of first token plus mean of the rest", lambda x: (x[:, 0] + x[:, 1:].mean(axis=1)) / 2
        ),
        Option(
            "first token beside mean of the rest",
            lambda x: np.concatenate([x[:, 0], x[:, 1:].mean(axis=1)], -1),
        ),
        Option(
            "mean of the rest beside first token",
            lambda x: np.concatenate([x[:, 1:].mean(axis=1), x[:, 0]], -1),
        ),
        Option(
            "first token beside mean of all", lambda x: np.concatenate([x[:, 0], x.mean(axis=1)], -1)
        ),
        Option("the sum of all tokens", lambda x: x.sum(axis=1)),
    ]


def _ordinary_first(segment: Segment, rows: int) -> tuple[Option, ...]:
    said = str(segment.fact("pool", "pooling", "global_pool", "pool_type", "kind", "classifier"))
    label = "the mean" if re.search("mean|avg|gap", said) else "the first token"
    return tuple(sorted(_options(rows), key=lambda option: not option.label.startswith(label)))
