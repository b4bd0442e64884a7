"""Modules and tensors that a function uses without being given them, in float64 while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from parity.verifier.programs.held import held_by, is_module
from parity.verifier.programs.jaxprs.values import rounding_of
from parity.verifier.programs.operation import Kind

Leaf = tuple[Kind, str, torch.Tensor, float]
"""Kind, path, tensor, rounding of the type that it came in."""


class HeldByTorch:
    """The torch modules and the tensors that a function holds."""

    def __init__(self, function: Any) -> None:
        values = [] if isinstance(function, torch.nn.Module) else list(held_by(function))
        self.modules = {n: m for n, m in values if isinstance(m, torch.nn.Module) and is_module(m)}
        self._tensors = {name: t for name, t in values if isinstance(t, torch.Tensor)}

    def paths(self) -> dict[int, str]:
        """Return the path of each module, by its `id`."""
        return {
            id(inner): _joined(name if len(self.modules) > 1 else "", path)
            for name, module in self.modules.items()
            for path, inner in module.named_modules()
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return its tensors and the parameters of its modules, by their paths."""
        several = len(self.modules) > 1
        named = {
            _joined(name if several else "", path): each
            for name, module in self.modules.items()
            for path, each in module.named_parameters()
        }
        return {**named, **self._tensors}

    @contextmanager
    def cast(self, dtype: torch.dtype | None) -> Iterator[list[Leaf]]:
        """Convert all of it to a type while entered, or leave its types, and take its gradients away;
        restore both afterwards.

        The modules and tensors stay the same objects: the function finds them where it looks.
        """
        leaves: list[Leaf] = []
        with ExitStack() as stack:
            for name, module in self.modules.items():
                loaded = module.state_dict(keep_vars=True)
                named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
                for path, tensor in named.items():
                    kind: Kind = "parameter" if path in loaded else "constant"
                    path = _joined(name if len(self.modules) > 1 else "", path)
                    leaves.append((kind, path, tensor, rounding_of(tensor.dtype)))
            for name, tensor in self._tensors.items():
                leaves.append(("parameter", name, tensor, rounding_of(tensor.dtype)))
            for tensor in {id(t): t for _, _, t, _ in leaves}.values():
                stack.callback(_put, tensor, tensor.data, tensor.grad if tensor.is_leaf else None)
                if tensor.is_leaf and tensor.is_floating_point():
                    stack.callback(tensor.requires_grad_, tensor.requires_grad)
                whole = tensor.data.to(dtype) if dtype and tensor.is_floating_point() else tensor.data
                _put(tensor, whole.clone(), None)  # the function may write into it
            yield leaves


def _put(tensor: torch.Tensor, data: torch.Tensor, grad: torch.Tensor | None) -> None:
    if tensor.is_leaf:
        tensor.grad = None
    tensor.data = data
    if grad is not None:
        tensor.grad = grad


def _joined(*names: str) -> str:
    return ".".join(filter(None, names))


def all_modules(modules: Sequence[Any]) -> list[torch.nn.Module]:
    """Return modules with those inside of them."""
    return [inner for each in modules if isinstance(each, torch.nn.Module) for inner in each.modules()]
