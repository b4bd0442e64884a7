"""A style: one way in which people write the model; and the switch that puts a mistake into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evidence.clean_pairs.sizes import FEATURES, Size


def _as_it_is(size: Size) -> Size:
    return size


EVERY = frozenset(FEATURES)
PLAIN = frozenset({"mean", "relu", "no class token"})


@dataclass(frozen=True)
class Wrong:
    """A mistake by its name, in one block or, where `block` is None, in all; without a name, none.

    A style asks `wrong("epsilon", i)` where the mistake would be; the line that asks is where it is,
    and so is a line that ends in a comment `# wrong: epsilon`.
    """

    name: str = ""
    block: int | None = None

    def __call__(self, name: str, i: int | None = None) -> bool:
        """Whether this mistake is to be made here, in block `i`."""
        return name == self.name and (i is None or self.block is None or i == self.block)


RIGHT = Wrong()


@dataclass(frozen=True)
class Side:
    """A program as a style makes it of weights.

    Of torch: a module and its state, or a function and what it takes in front of the images. Of JAX: a
    callable alone, a Linen module and its variables, or a function and such a tree.
    """

    program: Any
    given: Any = None
    finish: Callable[[Any, Any], Any] | None = None
    """What is done to a loaded module of torch before it runs, with an example of its images."""
    spread: str = ""
    """The name of the images, where a program takes them by name."""


@dataclass(frozen=True)
class Style:
    """One way to write it."""

    name: str
    group: str
    make: Callable[..., Side]
    """Of weights, size, `Wrong` and, where `typed`, the name of the type to compute in or None."""
    accepts: frozenset[str] = EVERY
    faults: frozenset[str] = frozenset()
    channels_last: bool = True
    typed: bool = False
    function: str = "vit"
    """`vit`, or `clip`; only styles of one function are compared."""

    adapt: Callable[[Size], Size] = _as_it_is
    """What it makes of a size that it cannot have."""
    half: bool = True
    """Whether it is the same function in bfloat16: timm's DINOv3 rounds its rotary tables with it."""
    narrow: bool = False
    """Whether its library computes a step in float32 whatever the type."""

    @property
    def torch(self) -> bool:
        """Whether it is PyTorch's."""
        return self.group.startswith("torch")

    def side(self, w: Any, size: Size, wrong: Wrong = RIGHT, dtype: str | None = None) -> Side:
        """The style's program of weights."""
        return self.make(w, size, wrong, dtype) if self.typed else self.make(w, size, wrong)
