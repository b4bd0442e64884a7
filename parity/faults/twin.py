"""The operations of a framework that faults use, by the same names for both twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from vit_config import ViTConfig

TwinName = Literal["jax", "torch"]
TWINS: tuple[TwinName, ...] = get_args(TwinName)
FRAMEWORKS: dict[TwinName, str] = {"jax": "JAX", "torch": "PyTorch"}


class Twin(Protocol):
    """One twin, with the operations in which the two frameworks differ."""

    name: TwinName
    xp: Any
    """Array namespace, ``jax.numpy`` or ``torch``; faults use the functions that both have."""
    call: str
    """Name of the method in which a module computes: ``__call__`` or ``forward``."""
    model: type
    """The class of the whole model."""

    @property
    def activations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Activations by the schema's names."""
        ...

    def abstract_model(self, cfg: ViTConfig) -> Any:
        """Build a model's tree without values."""
        ...

    def modules(self, model: Any) -> Iterator[tuple[str, Any]]:
        """Yield every module with its dotted path; the model itself has an empty one."""
        ...

    def weight(self, module: Any) -> Any:
        """Return the weight of a linear layer, a convolution or a norm, in PyTorch's layout."""
        ...

    def bias(self, module: Any) -> Any:
        """Return the bias of such a layer, or None."""
        ...

    def epsilon(self, norm: Any) -> float:
        """Return the epsilon of a norm."""
        ...

    def cast(self, x: Any, dtype: str) -> Any:
        """Cast an array to another type, such as ``float32``."""
        ...

    def widened(self, x: Any) -> Any:
        """Cast an array to at least float32."""
        ...

    def detached(self, x: Any) -> Any:
        """Return the same values, cut off from the gradient."""
        ...


@dataclass(frozen=True)
class Here:
    """The place of a fault: one module of the running model."""

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
        """Return the module of that name beside this one."""
        return self.modules[f"{self.path.rpartition('.')[0]}.{name}"]


def operations_of(name: TwinName) -> Twin:
    """Return the operations of the twin of that name, after importing its framework."""
    if name == "jax":
        from parity.faults.twin_jax import JaxOperations

        return JaxOperations()
    from parity.faults.twin_torch import TorchOperations

    return TorchOperations()
