"""From tokens to one vector: class token, means, maxima, and what is done to the vector."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.tensors import sources
from parity.verifier.diagnose.segment import Segment

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
        Aspect("of", "missing-norm", tuple(_inputs(segment, tokens))),
        Aspect("pool", "pooling", _ordinary_first(segment, rows)),
        Aspect("then", "pre-logits", _THEN),
    )

    def compute(v: Values) -> np.ndarray | None:
        given: _Input = v["of"]
        y = given.behind(v["pool"](given.tokens))
        return v["then"](y).reshape(result.shape) if y is not None and y.size == result.size else None

    yield Computation("pooling", aspects, compute, slug=_slug)


@dataclass(frozen=True)
class _Input:
    """What is pooled, and the norm that the pooled vectors go through."""

    tokens: np.ndarray
    """(B, T, D)."""
    normed: bool
    """Whether a norm returned them."""
    edges: tuple[np.ndarray, np.ndarray] | None = None
    """What a norm after the pooling was given and returned."""

    def behind(self, y: np.ndarray) -> np.ndarray | None:
        """What becomes of pooled vectors; None if they are not what the norm was given."""
        if self.edges is None:
            return y
        given, returned = self.edges
        return returned if y.size == given.size and _same(y.reshape(given.shape), given) else None


def _slug(a: Values, b: Values) -> str:
    """A norm before the pooling against one behind it, or a norm against none."""
    places = {(each["of"].normed, each["of"].edges is not None) for each in (a, b)}
    return "norm-place" if places == {(True, False), (False, True)} else "missing-norm"


def _inputs(segment: Segment, tokens: list[tuple[str, np.ndarray]]) -> Iterator[Option]:
    for name, x in tokens:
        for norm, edges in _norms_of_vectors(segment, x):
            code = f"call {norm} after the pooling"
            label = f"of {name}, {norm} after the pooling"
            yield Option(label, _Input(x, _is_norm(segment, name), edges), torch=code, jax=code)
    for name, x in tokens:
        normed = _is_norm(segment, name)
        code = f"call {name.removesuffix(' out')} before the pooling" if normed else f"pool {name}"
        slug = "" if normed else "missing-norm"
        yield Option(f"of {name}", _Input(x, normed), slug, torch=code, jax=code)


def _norms_of_vectors(
    segment: Segment, tokens: np.ndarray
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """The norms that were given one vector per image: their names, inputs and outputs."""
    for name, returned in segment.before.items():
        given = segment.given.get(f"{name.removesuffix(' out')} in")
        if given is None or given.shape != returned.shape or not _is_norm(segment, name):
            continue
        if given.size == len(tokens) * tokens.shape[-1]:
            yield name.removesuffix(" out"), (given, returned)


def _is_norm(segment: Segment, name: str) -> bool:
    path = name.removesuffix(" out")
    kind = segment.children[path].name if path in segment.children else ""
    return bool(re.search(r"norm|(^|[._])ln", f"{path} {kind}".lower()))


def _same(x: np.ndarray, y: np.ndarray) -> bool:
    return float(np.linalg.norm(x - y)) <= 1e-3 * float(np.linalg.norm(y))


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
