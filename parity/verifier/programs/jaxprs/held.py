"""Modules and arrays that a function of JAX's uses without being given them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from parity.verifier.programs.callables import is_a
from parity.verifier.programs.held import held_by, is_module

MODES = ("deterministic", "use_running_average")
"""Attributes that tell a layer of NNX whether it trains."""


class HeldByJax:
    """The Flax modules and the arrays that a function holds."""

    def __init__(self, function: Any) -> None:
        values = list(held_by(function))
        self.modules = {n: each for n, each in values if is_module(each) and is_a(each, "flax")}
        self.arrays = {id(each): (name, each) for name, each in values if not is_module(each)}

    def labels(self) -> dict[int, str]:
        """Return the paths of arrays by their `id`, as a trace meets them."""
        labels = {i: name for i, (name, _) in self.arrays.items() if name}
        for name, module in self.modules.items():
            for path, leaf in _state(module):
                labels[id(leaf)] = ".".join([*([name] if len(self.modules) > 1 else []), *path])
        return labels

    @contextmanager
    def evaluating(self) -> Iterator[bool]:
        """Put the modules in evaluation mode while entered; yield whether any was in another."""
        if not self.modules:
            yield False
            return
        from flax import nnx

        inner = [each for module in self.modules.values() for _, each in nnx.iter_modules(module)]
        before = [(each, m, getattr(each, m)) for each in inner for m in MODES if hasattr(each, m)]
        for module in self.modules.values():
            module.eval()
        try:
            yield any(getattr(each, mode) != value for each, mode, value in before)
        finally:
            for each, mode, value in before:
                setattr(each, mode, value)


def _state(module: Any) -> Iterator[tuple[list[str], Any]]:
    """Yield the arrays of a module, with their paths."""
    import jax
    from flax import nnx

    for path, leaf in jax.tree_util.tree_leaves_with_path(nnx.state(module)):
        keys = [str(next(getattr(e, a) for a in ("key", "name", "idx") if hasattr(e, a))) for e in path]
        yield keys[:-1] if keys[-1:] == ["value"] else keys, leaf
