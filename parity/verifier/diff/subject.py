"""A model that can be run: what a user names, built, with its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from parity.verifier.operations.callables import arguments_of, is_torch, kinds_of, unwrapped
from vit_config import InputError

Framework = Literal["torch", "jax"]


@dataclass(frozen=True)
class Subject:
    """A model and what it is fed."""

    name: str
    """What the user calls it."""
    framework: Framework
    model: Any
    """A torch.nn.Module, an nnx.Module, a linen.Module, or something else that can be called."""
    args: tuple[Any, ...]
    """Positional inputs, arrays of numpy or of the framework."""
    kwargs: Mapping[str, Any]
    variables: Any = None
    """Of a Linen module: what `init` returned; of a function: the trees of parameters that are its first
    arguments."""

    def with_parameters(self, count: int) -> Subject:
        """A function whose first inputs are parameters, too; what is no function stays as it is."""
        if not inspect.isroutine(self.model) or len(self.args) <= count:
            return self
        held = (*(self.variables or ()), *self.args[:count])
        return replace(self, variables=held, args=self.args[count:])


def named_alone(paths: Iterable[str]) -> list[str]:
    """The paths of parameters in a function's first arguments, "0.head.weight"; where there is one tree
    alone, without its number."""
    paths = list(paths)
    if all(path.startswith("0.") for path in paths):
        return [path.removeprefix("0.") for path in paths]
    return paths


def framework_of(
    model: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
) -> Framework:
    """The framework that a model is written in.

    Raises:
        InputError: it cannot be called.
    """
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "torch" in roots:
        return "torch"
    if "flax" in roots:
        return "jax"
    if not callable(model):
        raise InputError(
            f"{type(model).__module__}.{type(model).__qualname__} is not a model: expected a"
            " torch.nn.Module, an nnx.Module, a linen.Module or a function"
        )
    return "torch" if is_torch(model, args, kwargs or {}) else "jax"


def subject_of(name: str, built: Any) -> Subject:
    """A subject from what a building function returns.

    That is ``(model, inputs)``, or ``(model, variables, inputs)`` of a Linen module; inputs are one
    array, a tuple of them, or a dictionary by argument names. The model may be a function: what was
    bound by `functools.partial`, or a tree in front of the inputs, are its parameters. A model whose
    `cfg` is a `ViTConfig` may come alone and is fed random images.

    Raises:
        InputError: something else.
    """
    model, *rest = built if isinstance(built, tuple) else (built,)
    variables = None
    if _is_linen(model):
        if len(rest) != 2:
            raise InputError(f"{name}: a Linen module is returned as (module, variables, inputs)")
        variables = rest.pop(0)
    if not rest:
        rest = [_random_images(name, model, framework_of(model))]
    if len(rest) > 1:
        raise InputError(f"{name}: expected (model, inputs), found a tuple of {len(rest) + 1}")
    args, kwargs = arguments_of(rest[0])
    model, args, kwargs, bound = unwrapped(model, args, kwargs)
    framework = framework_of(model, args, kwargs)
    if inspect.isroutine(model):
        of_function = kinds_of(args, bound).count("parameter")
        variables, args = args[:of_function], args[of_function:]
    return Subject(name, framework, model, args, kwargs, variables)


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
