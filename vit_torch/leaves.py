"""The parameters of a module tree, one by one, each with its name and kind."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from vit_config.init import Kind, is_fixed
from vit_torch.bounded import BoundedLinear
from vit_torch.norm import LayerNorm, RMSNorm

LAYERS: dict[type, Kind] = {
    nn.Linear: "linear",
    BoundedLinear: "linear",
    nn.Conv2d: "conv",
    LayerNorm: "norm",
    RMSNorm: "norm",
}


class Leaf(NamedTuple):
    """One parameter of a model."""

    name: str
    """The common, timm-style name, such as ``blocks.0.attn.qkv.weight``."""
    kind: Kind
    """Kind of the layer that holds the parameter."""
    variable: nn.Parameter

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.variable.shape)


def walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the dotted path and the object of a module and of every module below it."""
    yield from module.named_modules()


def leaves(model: nn.Module) -> tuple[Leaf, ...]:
    """Return every parameter of a model, in no promised order."""
    return tuple(
        Leaf(f"{path}.{name}" if path else name, "fixed" if is_fixed(name) else kind, variable)
        for path, module in walk(model)
        for kind in (LAYERS.get(type(module), "param"),)
        for name, variable in module.named_parameters(recurse=False)
    )


def count_parameters(model: nn.Module) -> int:
    """Count the numbers in the parameters of a model, or of a part of one, that training changes."""
    return sum(leaf.variable.numel() for leaf in leaves(model) if leaf.kind != "fixed")
