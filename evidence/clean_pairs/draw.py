"""Which pairs there are: every style meets every kind of weights and class of size; always the same."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from evidence.clean_pairs import clip, dinov3, mistakes, siglip, weights
from evidence.clean_pairs.sizes import LARGE, SIZES, Size
from evidence.clean_pairs.style import RIGHT, Style, Wrong
from evidence.clean_pairs.styles import styles
from evidence.clean_pairs.weights import KINDS, Weights

ROUNDS = 2
"""How often each style is B with each kind of weights."""
TYPES = ("float32", "bfloat16", "float32 and bfloat16")
"""Of two types, A holds its weights in the one and B in the other."""
SHAPES = {"vit": weights.shapes, "clip": clip.shapes, "siglip": siglip.shapes, "dinov3": dinov3.shapes}
"""The names and shapes of weights by the function that a style computes."""
SMALL = tuple(name for name in SIZES if name not in LARGE)


@dataclass(frozen=True)
class Pair:
    """Two styles, with the same weights; B with a mistake where `wrong` has a name."""

    a: str
    b: str
    size_name: str
    kind: str
    dtype: str = "float32"
    wrong: Wrong = RIGHT

    @property
    def name(self) -> str:
        """What `--only` takes."""
        parts = [self.a, self.b, self.size_name, self.kind, self.dtype]
        where = "" if self.wrong.block is None else f" in block {self.wrong.block}"
        return " | ".join(parts + ([self.wrong.name + where] if self.wrong.name else []))

    @property
    def sides(self) -> tuple[Style, Style]:
        """Both styles."""
        return styles()[self.a], styles()[self.b]

    @cached_property
    def size(self) -> Size:
        """The class of size, with what both styles can have."""
        return size_of(SIZES[self.size_name], self.kind, *self.sides)

    @cached_property
    def weights(self) -> Weights:
        """In float32."""
        return weights.draw(self.kind, self.size, SHAPES[self.sides[0].function])


def size_of(size: Size, kind: str, a: Style, b: Style) -> Size:
    """A class of size as a kind of weights and two styles have it."""
    size = KINDS[kind][2](size)
    for each in (a, b):
        size = each.adapt(size.only(a.accepts & b.accepts))
    return size


def _partners(b: Style, feature: str, every: list[Style]) -> list[Style]:
    return [
        s
        for s in every
        if s.function == b.function and s.name != b.name and (not feature or feature in s.accepts)
        and not (b.name.startswith("transformers, Dinov2") and "layer scale" not in s.accepts)
        and not (s.name.startswith("transformers, Dinov2") and "layer scale" not in b.accepts)
    ]  # fmt: skip


def clean(rounds: int = ROUNDS) -> Iterator[Pair]:
    """All pairs that must be equal."""
    every = list(styles().values())
    seen: set[Pair] = set()
    for b in every:
        rng = random.Random(zlib.crc32(b.name.encode()))
        classes = [*SIZES]
        rng.shuffle(classes)
        number = 0
        for turn in range(rounds):
            for kind, (_, feature, _) in KINDS.items():
                if feature and feature not in b.accepts:
                    continue
                while len(classes) <= number:
                    classes += rng.sample(SMALL, len(SMALL))
                partners = _partners(b, feature, every)
                if turn == 0:
                    partners = [s for s in partners if s.torch] or partners
                a = rng.choice(partners)
                dtype = TYPES[2 if number % 11 == 7 else number % 4 == 1]
                dtype = dtype if a.half and b.half else TYPES[0]
                pair = Pair(a.name, b.name, classes[number], kind, dtype)
                number += 1
                if pair not in seen:
                    seen.add(pair)
                    yield pair


FRESH = ("torch", "timm", "lecun", "xavier", "zero head", "zeros", "layer scale 1e-5")
TRAINED = ("trained", "outliers", "saturated", "pruned", "quantised", "alike", "dead")


def faulty() -> Iterator[Pair]:
    """All pairs with one mistake in B: half of them with fresh weights."""
    every = list(styles().values())
    for b in every:
        rng = random.Random(zlib.crc32(b.name.encode()) + 1)
        for number, name in enumerate(sorted(b.faults)):
            fault = mistakes.FAULTS[name]
            fresh = number % 2 and name not in mistakes.NAMES_ALONE
            by_name = name in mistakes.NAMES_ALONE
            kind = rng.choice(FRESH if fresh else [k for k in TRAINED if not (by_name and k == "alike")])
            feature = KINDS[kind][1]
            if feature and (feature not in b.accepts or name in mistakes.NOT_DEAD):
                kind = "timm" if fresh else "trained"
            classes = [s for s in fault.sizes or SMALL if fault.feature in ("", *SIZES[s].features)]
            partners = _partners(b, fault.feature or KINDS[kind][1], every)
            partners = [s for s in partners if s.torch and not s.narrow]
            size_name = rng.choice(classes)
            a = rng.choice(partners)
            depth = size_of(SIZES[size_name], kind, a, b).depth
            block = rng.choice([None, 0, depth - 1]) if fault.in_block else None
            yield Pair(a.name, b.name, size_name, kind, "float32", Wrong(name, block))
