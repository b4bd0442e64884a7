"""The parameters of a module tree, one by one, each with its common name and layout rule."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from flax import nnx

from vit_config.init import Kind, is_fixed

# layer type -> its kind, and for each of its parameters the common name and the axes that lead from
# JAX's layout to PyTorch's (None: the same)
LAYERS: dict[type, tuple[Kind, dict[str, tuple[str, tuple[int, ...] | None]]]] = {
    nnx.Linear: ("linear", {"kernel": ("weight", (1, 0)), "bias": ("bias", None)}),
    nnx.Conv: ("conv", {"kernel": ("weight", (3, 2, 0, 1)), "bias": ("bias", None)}),
    nnx.LayerNorm: ("norm", {"scale": ("weight", None), "bias": ("bias", None)}),
    nnx.RMSNorm: ("norm", {"scale": ("weight", None)}),
}


class Leaf(NamedTuple):
    """One parameter of a model."""

    name: str
    """The common, timm-style name, such as ``blocks.0.attn.qkv.weight``."""
    kind: Kind
    """Kind of the layer that holds the parameter."""
    path: tuple[str | int, ...]
    """Path of the parameter in the NNX state."""
    variable: nnx.Param
    axes: tuple[int, ...] | None
    """Transposition from JAX's layout to PyTorch's."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in PyTorch's layout."""
        shape = tuple(self.variable.get_value().shape)
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def to_common(self, value: Any) -> np.ndarray:
        """Copy a JAX-layout array to a new numpy array, in PyTorch's layout and in C order."""
        value = np.asarray(value)  # on a CPU this is JAX's own memory
        return np.array(value if self.axes is None else value.transpose(self.axes), order="C")

    def from_common(self, array: Any) -> Any:
        """Transpose a PyTorch-layout array, numpy's or JAX's, to JAX's layout."""
        return array if self.axes is None else array.transpose(np.argsort(self.axes))


def walk(module: nnx.Module) -> Iterator[tuple[tuple[str | int, ...], nnx.Module]]:
    """Yield the path and the object of a module and of every module below it."""
    yield (), module
    for name, child in vars(module).items():
        if isinstance(child, nnx.List):
            for index, item in enumerate(child):
                yield from (((name, index, *path), below) for path, below in walk(item))
        elif isinstance(child, nnx.Module):
            yield from (((name, *path), below) for path, below in walk(child))


def leaves(model: nnx.Module) -> tuple[Leaf, ...]:
    """Return every parameter of a model, in no promised order.

    Raises:
        TypeError: a layer of flax that has parameters but no layout rule here.
    """
    return tuple(leaf for path, module in walk(model) for leaf in _own_leaves(path, module))


def _own_leaves(path: tuple[str | int, ...], module: nnx.Module) -> Iterator[Leaf]:
    layer = next((each for each in type(module).__mro__ if each in LAYERS), None)
    kind, rules = LAYERS[layer] if layer else ("param", {})
    for name, variable in vars(module).items():
        if not isinstance(variable, nnx.Param) or variable.get_value() is None:
            continue
        if name not in rules and type(module).__module__.startswith("flax."):
            raise TypeError(f"no layout rule for {name} of {type(module).__name__} at {path}")
        common, axes = rules.get(name, (name, None))
        own = "fixed" if is_fixed(name) else kind
        yield Leaf(".".join(map(str, (*path, common))), own, (*path, name), variable, axes)


def count_parameters(model: nnx.Module) -> int:
    """Count the numbers in the parameters of a model, or of a part of one, that training changes."""
    return sum(int(np.prod(leaf.shape)) for leaf in leaves(model) if leaf.kind != "fixed")
