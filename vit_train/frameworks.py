"""The frameworks that have a twin."""

from __future__ import annotations

from typing import Literal

Framework = Literal["jax", "torch"]
NAMES: dict[Framework, str] = {"jax": "JAX", "torch": "PyTorch"}
