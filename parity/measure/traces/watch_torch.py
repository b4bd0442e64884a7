"""Watching a PyTorch model through its own hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from parity.measure.site import Where
from parity.measure.traces.watching import Tap, visit_arrays, visit_call


def is_array(value: Any) -> bool:
    """Return whether a value is a dense tensor; the wrapped tensors of `torch.func` do not count."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(value)  # type: ignore[attr-defined]


@contextmanager
def watch(model: nn.Module, tap: Tap) -> Iterator[None]:
    """Show `tap` every tensor that enters or leaves `model` and each module below it, when called."""
    handles = []
    for path, module in model.named_modules():
        running: list[int] = []  # a stack: a module may call itself

        def before(
            module: nn.Module,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            *,
            path: str = path,
            running: list[int] = running,
        ) -> Any:
            running.append(tap.begin(path, module))
            where = lambda port: Where(path, port, running[-1])  # noqa: E731
            return visit_call(args, kwargs, is_array, lambda port, x: tap.tensor(where(port), x))

        def after(
            module: nn.Module,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            output: Any,
            *,
            path: str = path,
            running: list[int] = running,
        ) -> Any:
            call = running.pop()
            seen = visit_arrays(
                output, "out", is_array, lambda port, x: tap.tensor(Where(path, port, call), x)
            )
            tap.end(path)
            return seen

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
