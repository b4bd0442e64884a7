"""Mistakes in activations and gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.faults.models import ACT
from parity.faults.registry import fault
from parity.faults.twin import Here


@fault("quick GELU, x sigmoid(1.702 x), instead of exact GELU", ACT, "activation", act="gelu")
def _quick_gelu(here: Here, act: Callable, x: Any) -> Any:
    return here.twin.activations["quick_gelu"](x)


@fault("ReLU instead of GELU", ACT, "activation", act="gelu")
def _relu(here: Here, act: Callable, x: Any) -> Any:
    return here.twin.activations["relu"](x)


@fault("SiLU instead of GELU", ACT, "activation", act="gelu")
def _silu(here: Here, act: Callable, x: Any) -> Any:
    return here.twin.activations["silu"](x)


@fault("no activation", ACT, "activation")
def _missing_activation(here: Here, act: Callable, x: Any) -> Any:
    return x


@fault(
    "gate and value of a packed SwiGLU swapped",
    "blocks.{i}.mlp",
    "other-value-read",
    method="hidden",
    mlp="swiglu_packed",
)
def _swapped_gate(here: Here, hidden: Callable, x: Any) -> Any:
    both = here.module.fc1(x)
    value, gate = both[..., : here.cfg.mlp_dim], both[..., here.cfg.mlp_dim :]
    return here.module.act(gate) * value
