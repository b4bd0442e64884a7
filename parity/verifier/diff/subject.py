"""A model that can be run: what a user names, built, with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vit_config import InputError

Framework = Literal["torch", "jax"]

TRAINING = "was given in training mode; it is compared in evaluation mode"
"""What is said of a model whose author forgot ``eval()``, or meant to compare what is random."""


@dataclass(frozen=True)
class Subject:
    """A model and what it is fed."""

    name: str
    """What the user calls it."""
    framework: Framework
    model: Any
    """A torch.nn.Module, an nnx.Module or a linen.Module."""
    args: tuple[Any, ...]
    """Positional inputs, arrays of numpy or of the framework."""
    kwargs: Mapping[str, Any]
    variables: Any = None
    """Of a Linen module: what `init` returned."""


def framework_of(model: Any) -> Framework:
    """The framework that a model is written in.

    Raises:
        InputError: it is no model.
    """
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "torch" in roots:
        return "torch"
    if "flax" in roots:
        return "jax"
    raise InputError(
        f"{type(model).__module__}.{type(model).__qualname__} is not a model: expected a"
        " torch.nn.Module, an nnx.Module or a linen.Module; `parity locate` compares plain functions"
    )


def subject_of(name: str, built: Any) -> Subject:
    """A subject from what a building function returns.

    That is ``(model, inputs)``, or ``(model, variables, inputs)`` of a Linen module; inputs are one
    array, a tuple of them, or a dictionary by argument names. A model whose `cfg` is a `ViTConfig` may
    come alone and is fed random images.

    Raises:
        InputError: something else.
    """
    model, *rest = built if isinstance(built, tuple) else (built,)
    framework = framework_of(model)
    variables = None
    if framework == "jax" and _is_linen(model):
        if len(rest) != 2:
            raise InputError(f"{name}: a Linen module is returned as (module, variables, inputs)")
        variables = rest.pop(0)
    if not rest:
        rest = [_random_images(name, model, framework)]
    if len(rest) > 1:
        raise InputError(f"{name}: expected (model, inputs), found a tuple of {len(rest) + 1}")
    inputs = rest[0]
    if isinstance(inputs, Mapping):
        return Subject(name, framework, model, (), dict(inputs), variables)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Subject(name, framework, model, args, {}, variables)


def _is_linen(model: Any) -> bool:
    return any(base.__module__.startswith("flax.linen") for base in type(model).__mro__)


def _random_images(name: str, model: Any, framework: Framework) -> Any:
    from parity.measure.redraw import random_batch
    from vit_config import ViTConfig

    cfg = getattr(model, "cfg", None)
    if not isinstance(cfg, ViTConfig):
        raise InputError(f"{name}: returns a model without inputs; return (model, inputs)")
    images = random_batch(cfg, 2, seed=0).images  # (B, H, W, C)
    return images.transpose(0, 3, 1, 2) if framework == "torch" else images
