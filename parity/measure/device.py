"""The choice of device that both twins compute on; reports name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from vit_config import ConfigError

if TYPE_CHECKING:
    import torch

Device = Literal["cpu", "gpu"]
DEVICES: tuple[Device, ...] = get_args(Device)
"""The CPU, where every limit was measured; or the first GPU of each framework."""


def torch_device(device: Device) -> torch.device:
    """Return PyTorch's device of that kind.

    Raises:
        ConfigError: the framework sees no such device.
    """
    import torch

    if device == "gpu" and not torch.cuda.is_available():
        raise ConfigError("device = gpu, but PyTorch sees none (torch.cuda.is_available()); use cpu")
    return torch.device("cpu" if device == "cpu" else "cuda")


def jax_device(device: Device) -> Any:
    """Return JAX's first device of that kind, a `jax.Device`.

    Raises:
        ConfigError: the framework sees no such device.
    """
    import jax

    try:
        return jax.devices(device)[0]
    except RuntimeError:  # no backend of that kind
        raise ConfigError(
            f"device = {device}, but JAX sees none (it computes on {jax.default_backend()}); use"
            f" {'cpu' if device == 'gpu' else 'gpu'}"
        ) from None


@contextmanager
def jax_on(device: Device) -> Iterator[None]:
    """Make a device JAX's default inside the context."""
    import jax

    with jax.default_device(jax_device(device)):
        yield


def names(device: Device) -> dict[str, str]:
    """Return each framework's name for its device, by ``jax`` and ``torch``."""
    import torch

    on_torch = torch_device(device)
    card = torch.cuda.get_device_name(on_torch) if on_torch.type == "cuda" else "cpu"
    return {"jax": jax_device(device).device_kind, "torch": card}
