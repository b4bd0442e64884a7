"""What the rooms of the museum share: an exhibit, its label, and numbers to run it with.

An exhibit is a mistake that somebody made in public, written anew and small: a function that returns
the right program and the wrong one, each with its inputs. The line that is wrong, or that should not be
alone, ends in `# wrong`. The label states the facts, the address of the thread, and which names of a
cause are right for it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

B, N, D, H, M = 2, 7, 30, 5, 22
"""Images, tokens, width, heads, hidden width of a perceptron; a head is 6 wide."""


@dataclass(frozen=True)
class Exhibit:
    """One historical mistake."""

    name: str
    address: str
    fact: str
    names: frozenset[str]
    """The causes that are right; a cause that is not among them is a wrong name."""
    make: Callable[[], tuple[Any, Any]]
    """The right side and the wrong one, as `compare` takes them."""
    gradients: bool = False

    @property
    def lines(self) -> frozenset[tuple[str, int]]:
        """File and number of the wrong lines, in the function or in what it uses of its room."""
        room = inspect.getmodule(self.make)
        used: dict[str, Any] = {}
        new: dict[str, Any] = {self.make.__name__: self.make}
        while new:
            used |= new
            words = {
                word for each in new.values() for word in re.findall(r"\w+", inspect.getsource(each))
            }
            new = {
                word: own
                for word in words - set(used)
                if getattr(own := getattr(room, word, None), "__module__", "") == self.make.__module__
            }
        wrong = set()
        for each in used.values():
            source, first = inspect.getsourcelines(each)
            file = inspect.getsourcefile(each) or ""
            wrong |= {(file, first + i) for i, text in enumerate(source) if "# wrong" in text}
        return frozenset(wrong)


EXHIBITS: dict[str, Exhibit] = {}


def exhibit(address: str, fact: str, *names: str, gradients: bool = False) -> Callable[[Any], Any]:
    """Put a function on show.

    Args:
        address: on github.com, as owner/repository/issues/number.
        fact: what was wrong.
        names: of causes that say so.
        gradients: whether the sides compute gradients themselves.
    """

    def show(make: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
        name = make.__name__
        assert name not in EXHIBITS, name
        EXHIBITS[name] = Exhibit(
            name, f"https://github.com/{address}", fact, frozenset(names), make, gradients
        )
        return make

    return show


def drawn(*shape: int, seed: int = 1, scale: float = 1.0) -> np.ndarray:
    """Normally distributed numbers."""
    return scale * np.random.default_rng(seed).normal(size=shape)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Parameters that hide nothing: matrices around 0, vectors around 1."""
    rng = np.random.default_rng(7)
    return {n: 0.3 * rng.normal(size=s) + (len(s) == 1) for n, s in shapes.items()}


def tokens(*shape: int) -> np.ndarray:
    """A batch of token vectors, (B, N, D) unless said otherwise."""
    return drawn(*(shape or (B, N, D)))


def torched(tree: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same numbers as torch's tensors."""
    import torch

    return {name: torch.from_numpy(value) for name, value in tree.items()}


def filled(module: Any) -> Any:
    """A torch module with parameters that hide nothing, in evaluation mode."""
    import torch

    rng = np.random.default_rng(7)
    with torch.no_grad():
        for parameter in module.parameters():
            shape = tuple(parameter.shape)
            parameter.copy_(torch.from_numpy(0.3 * rng.normal(size=shape) + (len(shape) == 1)))
    return module.double().eval()
