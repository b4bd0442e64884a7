"""Mistakes in the backward pass alone: the forward pass is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.faults.models import two_lines
from parity.faults.registry import fault
from parity.faults.twin import Here


@fault("the residual around attention cut off from the gradient", "blocks.{i}", "detached",
       stage="backward", block="pre_norm", num_parallel=1)  # fmt: skip
def _detached_residual(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    return two_lines(here, x, options, attention=lambda x, branch: here.twin.detached(x) + branch)


@fault("the gradient through the activation doubled", "blocks.{i}.mlp.act", "one-factor-too-many",
       stage="backward")  # fmt: skip
def _doubled_gradient(here: Here, act: Callable, x: Any) -> Any:
    y = act(x)
    return y + (y - here.twin.detached(y))


@fault("exact GELU with the gradient of tanh GELU", "blocks.{i}.mlp.act", "activation",
       stage="backward", act="gelu")  # fmt: skip
def _tanh_gelu_gradient(here: Here, act: Callable, x: Any) -> Any:
    tanh = here.twin.activations["gelu_tanh"](x)
    return here.twin.detached(act(x)) + (tanh - here.twin.detached(tanh))
