"""What a fault needs to know of the framework of the twin that it is put into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from vit_config import ViTConfig

TwinName = Literal["jax", "torch"]
TWINS: tuple[TwinName, ...] = get_args(TwinName)
FRAMEWORKS: dict[TwinName, str] = {"jax": "JAX", "torch": "PyTorch"}


class Twin(Protocol):
    """One twin, and the little in which the two frameworks differ."""

    name: TwinName
    xp: Any
    """The array namespace: ``jax.numpy`` or ``torch``, of which the faults use what both have."""
    call: str
    """The method in which a module computes: ``__call__`` or ``forward``."""
    model: type
    """The class of the whole model."""

    @property
    def activations(self) -> Mapping[str, Callable[[Any], Any]]:
        """By the schema's names."""
        ...

    def abstract_model(self, cfg: ViTConfig) -> Any:
        """A model's tree without values."""
        ...

    def modules(self, model: Any) -> Iterator[tuple[str, Any]]:
        """Every module with its dotted path; the model itself has an empty one."""
        ...

    def weight(self, module: Any) -> Any:
        """The weight of a linear layer, a convolution or a norm, in PyTorch's layout."""
        ...

    def bias(self, module: Any) -> Any:
        """The bias of such a layer, or None."""
        ...

    def epsilon(self, norm: Any) -> float:
        """The epsilon of a norm."""
        ...

    def apply(self, module: Any, x: Any, weight: Any, bias: Any) -> Any:
        """A linear layer or convolution with another weight (PyTorch's layout) and bias."""
        ...

    def cast(self, x: Any, dtype: str) -> Any:
        """An array in another type, such as ``float32``."""
        ...

    def widened(self, x: Any) -> Any:
        """An array in at least float32."""
        ...

    def constant(self, value: Any, like: Any) -> Any:
        """A numpy array as one of the framework, with the type of `like`."""
        ...

    def detached(self, x: Any) -> Any:
        """The same values, cut off from the gradient."""
        ...

    def softmax(self, x: Any, axis: int) -> Any:
        """exp(x), each slice along `axis` summing to 1."""
        ...

    def setting(self, module: Any, **attributes: Any) -> AbstractContextManager[None]:
        """A context in which a module's attributes have other values."""
        ...


@dataclass(frozen=True)
class Here:
    """Where a fault is at work: one module of the model that runs."""

    twin: Twin
    path: str
    modules: Mapping[str, Any]
    """Every module of that model, by its path."""

    @property
    def module(self) -> Any:
        """The module whose method was called."""
        return self.modules[self.path]

    @property
    def xp(self) -> Any:
        """The array namespace of the framework."""
        return self.twin.xp

    @property
    def cfg(self) -> ViTConfig:
        """The schema of the model."""
        return self.modules[""].cfg

    def sibling(self, name: str) -> Any:
        """The module of that name beside this one."""
        return self.modules[f"{self.path.rpartition('.')[0]}.{name}"]


def twin(name: TwinName) -> Twin:
    """The twin of that name; its framework is imported now."""
    if name == "jax":
        from parity.faults.twin_jax import JaxTwin

        return JaxTwin()
    from parity.faults.twin_torch import TorchTwin

    return TorchTwin()
