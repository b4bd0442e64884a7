"""Mistakes in how a block adds its branches up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.faults.models import BLOCK, two_lines
from parity.faults.registry import fault
from parity.faults.twin import Here

SCALED: dict[str, Any] = {
    "layer_scale": lambda gain: gain is not None,
    "layer_scale_on": "both",
    "block": "pre_norm",
}


@fault(
    "the residual around the MLP dropped", BLOCK, "residual-left-out", block="pre_norm", num_parallel=1
)
def _dropped_mlp_residual(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    return two_lines(here, x, options, mlp=lambda x, branch: branch)


@fault("the attention branch added twice", BLOCK, "one-term-too-many", block="pre_norm", num_parallel=1)
def _doubled_attention(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    return two_lines(here, x, options, attention=lambda x, branch: x + branch + branch)


@fault("the MLP branch added twice", BLOCK, "one-term-too-many", block="pre_norm", num_parallel=1)
def _doubled_mlp(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    return two_lines(here, x, options, mlp=lambda x, branch: x + branch + branch)


@fault("the attention branch added to the normalised stream", BLOCK, "other-value-read",
       block="pre_norm", num_parallel=1)  # fmt: skip
def _normed_residual(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    def add(x: Any, branch: Any) -> Any:
        return here.module.norm1(x) + branch

    return two_lines(here, x, options, attention=add)


@fault("norms after the residual sums instead of before the branches", BLOCK, "post-norm-for-pre-norm",
       block="pre_norm", num_parallel=1)  # fmt: skip
def _post_norm(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    own = here.module
    draw = {name: value for name, value in options.items() if name == "rngs"}
    y, weights = own.attn(x, **options)
    x = own.norm1(x + own.drop_path1(own.ls1(y), **draw))
    return own.norm2(x + own.drop_path2(own.ls2(own.mlp(x, **draw)), **draw)), weights


@fault("layer scales of the two branches swapped", "blocks.{i}.ls1", "parameter",
       at=("blocks.{i}.ls1", "blocks.{i}.ls2"), **SCALED)  # fmt: skip
def _swapped_layer_scales(here: Here, scale: Callable, x: Any) -> Any:
    other = "ls2" if here.path.endswith("ls1") else "ls1"
    return x * here.sibling(other).gamma[...]


@fault("no layer scale", "blocks.{i}.ls1", "gain-left-out",
       at=("blocks.{i}.ls1", "blocks.{i}.ls2"), **SCALED)  # fmt: skip
def _missing_layer_scale(here: Here, scale: Callable, x: Any) -> Any:
    return x
