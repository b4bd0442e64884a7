"""The frameworks that have a twin."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from vit_config import ConfigError

Framework = Literal["jax", "torch"]
NAMES: dict[Framework, str] = {"jax": "JAX", "torch": "PyTorch"}


def default_framework() -> Framework:
    """Return the framework that commands use if none is asked for."""
    return "jax" if find_spec("jax") else "torch"


def only_framework() -> Framework:
    """Return the framework that is installed, where it is the only one.

    Raises:
        ConfigError: both are.
    """
    if find_spec("jax") and find_spec("torch"):
        raise ConfigError('JAX and PyTorch are both installed; give framework = "jax" or "torch"')
    return default_framework()
