"""Made-up mistakes that no list of causes foresees; a comparison must still locate them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.faults.operations import apply, constant
from parity.faults.models import two_lines
from parity.faults.registry import fault
from parity.faults.twin import Here


@fault(
    "a weight of the MLP moved by noise inside the forward pass",
    "blocks.{i}.mlp.fc1",
    "one-factor-too-many",
)
def _perturbed_weight(here: Here, linear: Callable, x: Any) -> Any:
    weight = here.twin.weight(here.module)
    noise = np.random.default_rng(0).standard_normal(tuple(weight.shape))
    weight = weight * (1 + 0.01 * constant(here, noise, weight))
    return apply(here, x, weight, here.twin.bias(here.module))


@fault("Snake, x + sin(x)^2 (arXiv 2006.08195), in place of the activation", "blocks.{i}.mlp.act", None)
def _snake(here: Here, act: Callable, x: Any) -> Any:
    return x + here.xp.sin(x) ** 2


@fault("the second token set to zero after attention's projection", "blocks.{i}.attn.proj",
       "one-factor-too-many", attention_out_proj=True)  # fmt: skip
def _zeroed_token(here: Here, linear: Callable, x: Any) -> Any:
    y = linear(x)
    return y * constant(here, np.arange(y.shape[1]) != 1, y)[:, None]


@fault("a sine of the stream added to the residual sum", "blocks.{i}", "one-term-too-many or none",
       block="pre_norm", num_parallel=1)  # fmt: skip
def _sine_in_the_residual(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    return two_lines(here, x, options, attention=lambda x, branch: x + branch + here.xp.sin(3 * x) / 4)


@fault("each token mixed with the next one after the norm", "blocks.{i}.norm1", "one-step-too-many")
def _smeared_tokens(here: Here, norm: Callable, x: Any) -> Any:
    y = norm(x)
    return 0.9 * y + 0.1 * here.xp.roll(y, -1, 1)
