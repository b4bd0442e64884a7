"""What takes no hooks, as a module that is seen at its own edge: TorchScript and plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from parity.verifier.diff.subject import named_alone
from parity.verifier.operations.aten.copies import copied


class AtItsEdge(nn.Module):
    """A call, and the tensors that it reads as parameters, by names that may hold dots."""

    def __init__(
        self, call: Callable[..., Any], held: dict[str, torch.Tensor], rest: list[torch.Tensor]
    ) -> None:
        super().__init__()
        self._call, self._held, self._rest = (call,), held, rest  # none of them registered
        for parameter in held.values():
            parameter.detach_().requires_grad_()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What is computed."""
        return self._call[0](*args, **kwargs)

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, Any]]:
        """Those that are read."""
        yield from self._held.items()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> AtItsEdge:
        with torch.no_grad():
            for tensor in (*self._held.values(), *self._rest):
                tensor.data = fn(tensor.data)
        return self


class Scripted(AtItsEdge):
    """A copy of a ScriptModule, in evaluation mode."""

    def __init__(self, script: torch.jit.ScriptModule) -> None:
        own = copied(script).eval()
        # the objects are kept: a ScriptModule makes new ones for its tensors whenever it is asked
        super().__init__(own, dict(own.named_parameters()), list(own.buffers()))

    def __deepcopy__(self, _: Any) -> Scripted:
        script: Any = self._call[0]
        return Scripted(script)


class Function(AtItsEdge):
    """A function whose first arguments are trees of parameters, which are copied."""

    def __init__(self, function: Callable[..., Any], trees: tuple[Any, ...]) -> None:
        flat, structure = tree_flatten_with_path(trees)
        leaves = [_copy(leaf) for _, leaf in flat]

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*tree_unflatten(leaves, structure), *args, **kwargs)

        def copied() -> Function:
            return Function(function, tree_unflatten(leaves, structure))

        names = named_alone([".".join(map(_entry, path)) for path, _ in flat])
        tensors = [
            (name, leaf)
            for name, leaf in zip(names, leaves, strict=True)
            if isinstance(leaf, torch.Tensor)
        ]
        rest = [leaf for _, leaf in tensors if not leaf.is_floating_point()]
        super().__init__(call, {n: leaf for n, leaf in tensors if leaf.is_floating_point()}, rest)
        self._copied = (copied,)

    def __deepcopy__(self, _: Any) -> Function:
        return self._copied[0]()


def _copy(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return torch.from_numpy(np.array(leaf))
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _entry(entry: Any) -> str:
    return str(next((getattr(entry, a) for a in ("key", "name", "idx") if hasattr(entry, a)), entry))
