"""timm as the peer that the twins are compared with; no other module of this package imports timm."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock

import torch

from parity.porting.reading.libraries.peers import import_timm

MODULES = ("vision_transformer", "deit", "eva", "beit", "naflexvit", "gemma4_vit")
"""Modules of timm whose architectures are compared."""


def architectures() -> dict[str, str]:
    """Return every architecture of the installed timm by name, with its module; aliases are left out."""
    timm = import_timm()
    return {name: module for module in MODULES for name in sorted(timm.list_models(module=module))}


def create_abstract(name: str, **changes: Any) -> torch.nn.Module:
    """Create a model of timm's with shapes in place of values."""
    with torch.device("meta"):
        return import_timm().create_model(name, pretrained=False, **changes)


def create_float64(name: str, **changes: Any) -> Any:
    """Create a model of timm's in float64 and evaluation mode."""
    model = import_timm().create_model(name, pretrained=False, **changes).double().eval()
    with float64():
        for module in model.modules():
            if hasattr(module, "init_non_persistent_buffers"):
                module.init_non_persistent_buffers()
    return model


@contextmanager
def float64() -> Iterator[None]:
    """Make timm compute in float64, inside the context, even what it always computes in float32.

    These are rotary tables and the lambda of differential attention. timm's code says
    ``torch.float32``, ``torch.float`` and ``.float()``; all are made to mean float64.
    """
    from timm.layers import pos_embed_sincos

    widened = []
    for function in _functions(pos_embed_sincos):
        defaults = function.__defaults__
        if defaults and torch.float32 in [d for d in defaults if isinstance(d, torch.dtype)]:
            widened.append((function, defaults))
    narrow = torch.float32
    for function, defaults in widened:
        function.__defaults__ = tuple(torch.float64 if d is narrow else d for d in defaults)
    try:
        with (
            mock.patch.object(torch, "float32", torch.float64),
            mock.patch.object(torch, "float", torch.float64),
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
        ):
            yield
    finally:
        for function, defaults in widened:
            function.__defaults__ = defaults


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions of a module and the methods of its classes."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield inspect.unwrap(value)
        elif inspect.isclass(value):
            yield from (method for method in vars(value).values() if inspect.isfunction(method))
