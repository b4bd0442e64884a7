"""Layouts written as text: ``"D h d -> (h d) D"`` says how another format's tensor becomes ours.

Each letter is an axis; letters in parentheses are merged into one axis, the first varying slowest; ``1``
is an axis of length one. Both sides have the same letters, so a text works in both directions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from vit_config import WeightsError

Shape = tuple[int, ...]
Axes = tuple[tuple[str, ...], ...]


class Layout(NamedTuple):
    """Both sides of a layout, each axis as a tuple of letters."""

    theirs: Axes
    ours: Axes

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse a text such as ``"i o -> o i"``."""
        return _parse(text)

    @property
    def inverse(self) -> Layout:
        """The layout in the other direction."""
        return Layout(self.ours, self.theirs)

    def bind(self, shape: Shape, known: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each letter, given the shape of a tensor of theirs.

        Raises:
            WeightsError: the shape does not fit the text, or leaves a size open.
        """
        sizes: dict[str, int] = {}
        if len(shape) != len(self.theirs):
            raise WeightsError(f"has shape {shape}, expected the axes {_text(self.theirs)}")
        for size, letters in zip(shape, self.theirs, strict=True):
            sizes.update(_bind_axis(size, letters, known, shape, self.theirs))
        return sizes

    def shape(self, shape: Shape, known: Mapping[str, int] | None = None) -> Shape:
        """Return the shape of our tensor for a shape of theirs."""
        sizes = self.bind(shape, known or {})
        return tuple(math.prod(sizes[letter] for letter in axis) for axis in self.ours)

    def apply(self, array: np.ndarray, known: Mapping[str, int] | None = None) -> np.ndarray:
        """Rearrange a tensor of theirs into ours."""
        sizes = self.bind(array.shape, known or {})
        source = [letter for axis in self.theirs for letter in axis]
        target = [letter for axis in self.ours for letter in axis]
        apart = array.reshape([sizes[letter] for letter in source])
        moved = apart.transpose([source.index(letter) for letter in target])
        return moved.reshape([math.prod(sizes[letter] for letter in axis) for axis in self.ours])


@cache
def _parse(text: str) -> Layout:
    theirs, ours = (_axes(side) for side in text.split("->"))
    if sorted(sum(theirs, ())) != sorted(sum(ours, ())):
        raise ValueError(f"{text!r}: both sides must have the same letters")
    return Layout(theirs, ours)


def _axes(side: str) -> Axes:
    words = re.findall(r"\([^)]*\)|\S+", side)
    return tuple(tuple(w for w in word.strip("()").split() if w != "1") for word in words)


def _bind_axis(
    size: int, letters: tuple[str, ...], known: Mapping[str, int], shape: Shape, axes: Axes
) -> dict[str, int]:
    """Return the sizes of the letters that share one axis; at most one of them may be unknown."""
    if len(letters) == 1:
        return {letters[0]: size}
    sizes = {letter: known[letter] for letter in letters if letter in known}
    product = math.prod(sizes.values())
    unknown = [letter for letter in letters if letter not in sizes]
    if len(unknown) > 1 or size % product or (not unknown and size != product):
        text = ", ".join(f"{letter} = {value}" for letter, value in sizes.items())
        raise WeightsError(
            f"has shape {shape}, which {_text(axes)} with {text or 'nothing known'} is not"
        )
    return {**sizes, **{letter: size // product for letter in unknown}}


def _text(axes: Axes) -> str:
    return " ".join(f"({' '.join(a)})" if len(a) > 1 else "".join(a) or "1" for a in axes)
