"""Pairing both twins' parameters by a walk over their module trees.

There is no name table and no pattern: a parameter's common name is its place in the tree, and its
layout rule is that of the layer holding it. The same pairs carry parameters, gradients and moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

from parity.porting.models.files import load, twin_of
from parity.porting.models.loaded import Loaded
from vit_config import WeightsError
from vit_config.errors import UnstatedError
from vit_train.frameworks import Framework

if TYPE_CHECKING:
    import numpy as np
    import torch

    import vit_jax
    import vit_torch


class Pair(NamedTuple):
    """One parameter, on both sides."""

    name: str
    """The common, timm-style name; also the key in torch's state dict."""
    jax: Any
    """The JAX model's `vit_jax.leaves.Leaf`."""
    torch: Any
    """The PyTorch model's `vit_torch.leaves.Leaf`."""

    def to_torch(self, value: Any) -> torch.Tensor:
        """Convert a JAX-layout array - parameter, gradient or moment - to a tensor, bit for bit."""
        from vit_torch.weights import from_numpy

        return from_numpy(self.jax.to_common(value))

    def to_jax(self, tensor: torch.Tensor) -> np.ndarray:
        """Convert a tensor to a JAX-layout array, bit for bit."""
        from vit_torch.weights import to_numpy

        return self.jax.from_common(to_numpy(tensor))


def pair(
    jax_model: vit_jax.ViT | vit_jax.TextTower, torch_model: vit_torch.ViT | vit_torch.TextTower
) -> tuple[Pair, ...]:
    """Pair every parameter of two models, or of two text towers, without changing them.

    Raises:
        WeightsError: one message with every parameter that has no partner, or a partner of another
            kind of layer, shape or type.
    """
    import vit_jax.leaves
    import vit_torch.leaves

    left = {leaf.name: leaf for leaf in vit_jax.leaves.leaves(jax_model)}
    right = {leaf.name: leaf for leaf in vit_torch.leaves.leaves(torch_model)}
    problems = [f"{name}: only in the JAX model, {left[name].shape}" for name in left.keys() - right]
    problems += [f"{name}: only in the torch model, {right[name].shape}" for name in right.keys() - left]
    pairs = tuple(Pair(name, left[name], leaf) for name, leaf in right.items() if name in left)
    for name, a, b in pairs:
        for what, x, y in (
            ("layer kind", a.kind, b.kind),
            ("shape", a.shape, b.shape),
            ("type", str(a.variable.get_value().dtype), str(b.variable.dtype).removeprefix("torch.")),
        ):
            if x != y:
                problems.append(f"{name}: {what} {x} in the JAX model, {y} in the torch model")
    if problems:
        raise WeightsError(f"{len(problems)} mismatches: " + "; ".join(sorted(problems)))
    return pairs


@overload
def to_torch(model: vit_jax.TextTower) -> vit_torch.TextTower: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def to_torch(model: Any) -> vit_torch.ViT: ...
def to_torch(model: Any) -> Any:
    """Return the PyTorch twin of a model, with the same parameters bit for bit, in evaluation mode.

    Args:
        model: a `vit_jax.ViT`, what `parity.load` returns for one, or another model or state dict in
            memory that `parity.load` reads; or a text tower, ``loaded.texts.model``.

    Raises:
        InputError, WeightsError, ConfigError: see `parity.load`.
    """
    return _twin(model, "jax", "torch")


@overload
def to_jax(model: vit_torch.TextTower) -> vit_jax.TextTower: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def to_jax(model: Any) -> vit_jax.ViT: ...
def to_jax(model: Any) -> Any:
    """Return the JAX twin of a model, with the same parameters bit for bit.

    Args:
        model: a `vit_torch.ViT`, what `parity.load` returns for one, or another model or state dict in
            memory that `parity.load` reads; or a text tower, ``loaded.texts.model``.

    Raises:
        InputError, WeightsError, ConfigError: see `parity.load`.
    """
    return _twin(model, "torch", "jax")


def _twin(model: Any, here: Framework, there: Framework) -> Any:
    ours, theirs = twin_of(here), twin_of(there)
    model = model.model if isinstance(model, Loaded) else model
    if isinstance(model, ours.TextTower):
        return theirs.text_from_arrays(model.cfg, ours.to_arrays(model))
    if not isinstance(model, ours.ViT):
        try:
            return load(model, framework=there).model
        except UnstatedError as error:
            taken = f'parity.load(..., framework="{there}", given={{...}}) takes such fields'
            raise UnstatedError(f"{error}; {taken}", error.fields) from None
    twin = theirs.from_arrays(model.cfg, ours.to_arrays(model))
    twin.about = model.about
    pair(*(model, twin) if there == "torch" else (twin, model))
    return twin
