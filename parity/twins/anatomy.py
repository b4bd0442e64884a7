"""The anatomy of a model: its modules, the shapes that pass through them, parameters and FLOPs.

The PyTorch twin runs on torch's meta device, which knows shapes but has no values: a model of any
size takes a second, and no memory but for its tables of fixed or relative positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import vit_torch.leaves
from vit_config import ViTConfig
from vit_config.init import is_fixed
from vit_torch.weights import abstract_model

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModulePart:
    """One module of a model."""

    path: str
    """The dotted path, such as ``blocks.0.attn``; empty for the model itself."""
    depth: int
    """Number of names in that path: 0 for the model."""
    type: str
    """Name of its class."""
    input_shape: Shape | None
    """Shape of the first tensor that its first call is given; None if there is no call or no tensor."""
    output_shape: Shape | None
    """Shape of the first tensor that its first call returns; None if there is none."""
    parameters: int
    """Number of parameters of the module and of everything below it."""
    own: dict[str, Shape]
    """Names and shapes of the parameters that the module itself holds."""
    flops: int
    """FLOPs of all its calls, everything below included, counted as `vit_config.costs` does."""

    @property
    def own_parameters(self) -> int:
        """Number of parameters that the module itself holds and that training changes."""
        return sum(math.prod(shape) for name, shape in self.own.items() if not is_fixed(name))


class RepeatedModules(NamedTuple):
    """Consecutive modules of a list that are alike in everything but their index."""

    first: ModulePart
    last: str
    """Path of the last module."""
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


def anatomy(
    cfg: ViTConfig, *, batch_size: int = 1, image_size: tuple[int, int] | None = None
) -> list[ModulePart]:
    """Return every module of the schema's model, parents first, in evaluation mode.

    Args:
        batch_size: images in the batch; shapes and FLOPs are those of the whole batch.
        image_size: height and width of the images in pixels, if not the schema's. A model with
            dynamic_image_size takes such images as it is, another one is built for that size.

    Raises:
        ConfigError: the model cannot be built for that size.
        InputError: the model cannot take that size.
    """
    if image_size is not None and not cfg.dynamic_image_size:
        cfg = cfg.replace(image_size=image_size)
    model = abstract_model(cfg).eval()
    size = image_size or cfg.image_size
    calls = _watch(model, torch.empty(batch_size, cfg.in_channels, *size, device="meta"))
    flops: dict[str, int] = {}
    parts = []
    for path, module in reversed(list(vit_torch.leaves.walk(model))):
        call = calls.get(path, _Calls())
        if path not in calls:  # a list of modules, which is never called itself
            call.flops = sum(flops[_below(path, name)] for name, _ in module.named_children())
        flops[path] = call.flops
        parts.append(
            ModulePart(
                path=path,
                depth=len(path.split(".")) if path else 0,
                type=type(module).__name__,
                input_shape=call.input_shape,
                output_shape=call.output_shape,
                parameters=vit_torch.leaves.count_parameters(module),
                own={name: tuple(p.shape) for name, p in module.named_parameters(recurse=False)},
                flops=call.flops,
            )
        )
    return parts[::-1]


def fold(parts: Sequence[ModulePart]) -> list[RepeatedModules]:
    """Fold each series of consecutive modules in a list that are alike in everything below them.

    Args:
        parts: modules in the order of `anatomy`.

    Returns:
        Runs in the same order; below a repeated module are the parts of the first.
    """
    runs: list[RepeatedModules] = []
    start = 0
    while start < len(parts):
        first = parts[start]
        size = _size(parts, start)
        pattern = _relative(parts, start)
        end = start + size
        if first.path.rpartition(".")[2].isdigit():
            while end < len(parts) and _relative(parts, end) == pattern:
                end += size
        count = (end - start) // size
        runs.append(RepeatedModules(first, parts[end - size].path, count))
        runs += fold(parts[start + 1 : start + size])
        start = end
    return runs


def _size(parts: Sequence[ModulePart], start: int) -> int:
    """Return how many parts make up a module and everything below it."""
    depth = parts[start].depth
    after = (i for i in range(start + 1, len(parts)) if parts[i].depth <= depth)
    return next(after, len(parts)) - start


def _relative(parts: Sequence[ModulePart], start: int) -> list[ModulePart]:
    """Return a module and everything below it, with paths relative to the module's."""
    skip = len(parts[start].path)
    return [replace(p, path=p.path[skip:]) for p in parts[start : start + _size(parts, start)]]


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@dataclass
class _Calls:
    """The calls that were seen of one module."""

    input_shape: Shape | None = None
    output_shape: Shape | None = None
    flops: int = 0
    began: list[int] = field(default_factory=list)
    """FLOPs of the whole run at the start of each call that has not returned yet."""
    returned: bool = False


def _watch(model: nn.Module, images: torch.Tensor) -> dict[str, _Calls]:
    """Run the model; return the calls of each module, by path."""
    counter = FlopCounterMode(display=False)
    calls: dict[str, _Calls] = {}

    def before(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = calls.setdefault(path, _Calls())
        if not call.began and not call.returned:
            call.input_shape = _first_shape([*args, *kwargs.values()])
        call.began.append(counter.get_total_flops())

    def after(path: str, output: Any) -> None:
        call = calls[path]
        call.flops += counter.get_total_flops() - call.began.pop()
        if not call.returned:
            call.output_shape = _first_shape([output])
        call.returned = True

    for path, module in vit_torch.leaves.walk(model):
        module.register_forward_pre_hook(
            lambda _, args, kwargs, path=path: before(path, args, kwargs), with_kwargs=True
        )
        module.register_forward_hook(lambda _, __, output, path=path: after(path, output))
    # not torch.no_grad(), under which the counter fails on a view of a parameter that needs gradients
    model.requires_grad_(False)
    with counter:
        model(images)
    return calls


def _first_shape(values: Iterable[Any]) -> Shape | None:
    for value in values:
        if isinstance(value, torch.Tensor):
            return tuple(value.shape)
        if isinstance(value, (tuple, list)) and (shape := _first_shape(value)) is not None:
            return shape
    return None
