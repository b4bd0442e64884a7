"""The core of attention: softmax(scale * q k^T + bias) v (arXiv 1706.03762, equation 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from parity.verifier.diagnose.catalogue import heads as parts
from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.heads_order import ARRANGEMENT, arranged, with_fitted_order
from parity.verifier.diagnose.catalogue.linear import PRODUCTS
from parity.verifier.diagnose.catalogue.logits import (
    BIASES,
    MASKS,
    SHARING,
    biased,
    find_bias,
    mask_of,
    spread,
)
from parity.verifier.diagnose.catalogue.numerics import exactly, rounded, sigmoid, softmax
from parity.verifier.diagnose.catalogue.projections import Projections, find
from parity.verifier.diagnose.catalogue.rotation import Rotations, rotations
from parity.verifier.diagnose.segment import Segment

SCALES = (
    Option(
        "scale 1/sqrt(d)", lambda d, w: d**-0.5, torch="(q * head_dim**-0.5) @ k.transpose(-2, -1)",
        jax="q / jnp.sqrt(head_dim)",
    ),
    Option("scale 1/sqrt(D)", lambda d, w: w**-0.5),
    Option("scale 1/d, which is 1/sqrt(d) twice", lambda d, w: 1.0 / d),
    Option("no scale", lambda d, w: 1.0),
    Option("scale sqrt(d)", lambda d, w: d**0.5),
    Option("scale 1/D", lambda d, w: 1.0 / w),
    Option("scale 1/sqrt(h)", lambda d, w: (w / d) ** -0.5),
)  # fmt: skip
"""The arguments: the width of a head, and D, that of all heads together."""

AXES = (
    Option(
        "softmax over the keys",
        -1,
        torch="logits.softmax(dim=-1)",
        jax="jax.nn.softmax(logits, axis=-1)",
    ),
    Option("softmax over the queries", -2),
    Option("softmax over the heads", 1),
    Option("softmax over the batch", 0),
    Option("no softmax", None),
    Option("sigmoid in place of softmax", "sigmoid"),
)
TYPES = (
    Option("weights as they are", exactly),
    Option("weights rounded to bfloat16", lambda x: rounded(x, "bfloat16")),
    Option("weights rounded to float16", lambda x: rounded(x, "float16")),
)


def computations(segment: Segment) -> Iterator[Computation]:
    """The weights, the mixed values, or one of q, k, v cut into heads - as the result's shape says."""
    shape = segment.result.shape
    if len(shape) not in (3, 4) or (not segment.children and not segment.before):
        return
    weights = _weights(segment)
    is_weights = len(shape) == 4 and shape[2] == shape[3] and weights is None
    width = None if is_weights else int(segment.result[0].size // shape[1])
    found = find(segment, width)
    if found is not None and len(shape) == 4 and not is_weights:
        found = find(segment, None if found.packed is None else found.packed.shape[-1] // 3)
    if found is None or segment.result.size % shape[0]:
        return
    core = _Core(segment, found, weights)
    if is_weights:
        if shape[3] == found.tokens:
            aspects = (*core.logits_aspects(), core.after(), SHARING, ARRANGEMENT)
            yield from core.with_fitted(Computation("attention weights", aspects, core.weights))
    elif segment.result.size == shape[0] * found.tokens * found.width:
        mixed = core.with_fitted(Computation("attention", core.aspects(), core.mixed))
        yield next(mixed)
        if len(shape) == 4:
            part = Aspect("part", "qkv-order", tuple(Option(each, each) for each in "qkv"))
            heads = Computation("heads", (part, *found.aspects(), ARRANGEMENT), core.part)
            yield heads
            yield from with_fitted_order(heads, segment.result, found.tokens)
        yield from mixed


def _weights(segment: Segment) -> np.ndarray | None:
    """The weights that a child returned, as their dropout does: (B, h, T, T)."""
    for name, x in reversed(list(segment.before.items())):
        if x.ndim == 4 and x.shape[2] == x.shape[3] and name != "in":
            return x
    return None


class _Core:
    def __init__(self, segment: Segment, projections: Projections, weights: np.ndarray | None) -> None:
        self.segment, self.projections, self.given = segment, projections, weights
        self.rotations: Rotations | None = rotations(segment, projections.tokens)
        self.bias = find_bias(segment, projections.tokens)

    def with_fitted(self, computation: Computation) -> Iterator[Computation]:
        """It; and the same with the order of heads, or the scale, that explains the result best."""
        yield computation
        yield from with_fitted_order(computation, self.segment.result, self.projections.tokens)
        fitted = self._fitted_scale()
        if fitted is not None:
            option = Option(f"scale {fitted:.5g}", lambda d, w: fitted)
            aspects = (
                replace(a, options=(option,)) if a.name == "scale" else a for a in computation.aspects
            )
            yield replace(computation, aspects=tuple(aspects), departures=0, unusual=1)

    def logits_aspects(self) -> tuple[Aspect, ...]:
        """What is open about the weights."""
        aspects = [*self.projections.aspects(), Aspect("scale", "attention-scale", SCALES)]
        if self.rotations is not None:
            aspects += self.rotations.aspects()
        if self.bias is not None:
            aspects.append(Aspect("bias", "attention-bias", BIASES))
        return (
            *aspects,
            Aspect("axis", "softmax-axis", AXES),
            Aspect("mask", "attention-mask", MASKS, alone=True),
            PRODUCTS,
        )

    def after(self) -> Aspect:
        """What happens to the weights."""
        return Aspect("type", "softmax-type", TYPES, alone=True)

    def aspects(self) -> tuple[Aspect, ...]:
        """What is open about the mixed values."""
        join = Aspect("join", "heads-layout", parts.JOINS)
        if self.given is not None:
            return (*self.projections.aspects(), join, SHARING, PRODUCTS, ARRANGEMENT)
        return (*self.logits_aspects(), self.after(), join, SHARING, ARRANGEMENT)

    def _fitted_scale(self) -> float | None:
        """The scale that explains the result best, all else being ordinary, by Newton's steps."""
        if self.given is not None:
            return None
        ordinary = {a.name: a.options[0].value for a in self._ordinary_aspects()}
        compute = (
            self.mixed if self.segment.result.shape[-1] != self.projections.tokens else self.weights
        )
        h = ordinary["heads"]
        scale = (self.projections.width // h) ** -0.5
        for _ in range(6):
            with np.errstate(all="ignore"):
                here, near = (
                    compute(ordinary | {"scale": lambda d, w, s=s: s})
                    for s in (scale, scale * (1 + 1e-6))
                )
            if here is None or near is None or here.shape != self.segment.result.shape:
                return None
            slope = (near - here) / (scale * 1e-6)
            size = float((slope**2).sum())
            if not size or not np.isfinite(size):
                return None
            step = float(((self.segment.result - here) * slope).sum()) / size
            scale = scale + max(-0.5 * abs(scale), min(step, abs(scale)))
        return scale

    def _ordinary_aspects(self) -> Iterator[Aspect]:
        yield from self.projections.aspects()
        if self.rotations is not None:
            yield from self.rotations.aspects()
        yield Aspect("bias", "", BIASES)
        yield Aspect("axis", "", AXES)
        yield Aspect("mask", "", MASKS)
        yield PRODUCTS
        yield self.after()
        yield Aspect("join", "", parts.JOINS)
        yield SHARING
        yield ARRANGEMENT

    def part(self, v: Values) -> np.ndarray | None:
        """One of q, k, v, cut into heads."""
        found = self.projections.cut(v)
        if found is None:
            return None
        heads = arranged(found["qkv".index(v["part"])], v["arrangement"])
        return parts.join(heads, "hd", self.segment.result.shape)

    def weights(self, v: Values) -> np.ndarray | None:
        """(B, h, T, T)."""
        found = self.projections.cut(v)
        if found is None:
            return None
        q, k, _ = found
        weights = self._softmax(v, q, k)
        return None if weights is None else arranged(weights, v["arrangement"])

    def mixed(self, v: Values) -> np.ndarray | None:
        """What the heads return, joined."""
        found = self.projections.cut(v)
        if found is None:
            return None
        q, k, values = found
        weights = self._softmax(v, q, k) if self.given is None else self.given
        if weights is None or weights.shape[1] % values.shape[1]:
            return None
        if self.rotations is not None and self.given is None:
            values = self.rotations.turn_values(values, v)
        values = spread(values, weights.shape[1], v["groups"])
        if values is None or weights.shape[-1] != values.shape[2]:
            return None
        y = arranged(v["product"](weights) @ v["product"](values), v["arrangement"])
        return parts.join(y, v["join"], self.segment.result.shape)

    def _softmax(self, v: Values, q: np.ndarray, k: np.ndarray) -> np.ndarray | None:
        if self.rotations is not None:
            turned = self.rotations.turn(q, k, v)
            if turned is None:
                return None
            q, k = turned
        if q.shape[1] % k.shape[1] or q.shape[-1] != k.shape[-1]:
            return None
        keys = spread(k, q.shape[1], v.get("groups", "neighbours"))
        if keys is None:
            return None
        scale = v["scale"](q.shape[-1], q.shape[1] * q.shape[-1])
        logits = v["product"](q * scale) @ v["product"](keys).swapaxes(-1, -2)
        if self.bias is not None:
            if self.bias.shape[-3] not in (1, logits.shape[1]):
                return None
            logits = logits + biased(self.bias, v["bias"])
        logits = logits + mask_of(v["mask"], logits.shape[-1])
        if v["axis"] is None:
            found = np.where(np.isfinite(logits), logits, 0.0)
        elif v["axis"] == "sigmoid":
            found = sigmoid(logits)
        else:
            found = softmax(logits, v["axis"])
        return v["type"](found)
