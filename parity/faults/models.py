"""The five faults of models that `parity check --fault` has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parity.faults.registry import fault
from parity.faults.twin import Here

ACT = "blocks.{i}.mlp.act"
BLOCK = "blocks.{i}"
NORM = "blocks.{i}.norm1"
NORMS = (NORM, "blocks.{i}.norm2")


@fault("tanh GELU instead of exact GELU", ACT, "activation", act="gelu")
def _tanh_gelu(here: Here, act: Callable, x: Any) -> Any:
    return here.twin.activations["gelu_tanh"](x)


@fault("tanh GELU, in the float32 path only", ACT, "activation or none", twin="jax", act="gelu")
def _tanh_gelu_in_float32(here: Here, act: Callable, x: Any) -> Any:
    return here.twin.activations["gelu_tanh"](x) if "float32" in str(x.dtype) else act(x)


def layer_norm(
    here: Here,
    x: Any,
    *,
    epsilon: float = 1.0,
    one_pass: bool = False,
    centred: bool = True,
    lost: int = 0,
    offset: float = 0.0,
    biased: bool = True,
) -> Any:
    """Compute a LayerNorm (arXiv 1607.06450) with deliberate mistakes.

    Args:
        epsilon: factor of the module's own epsilon.
        one_pass: whether the variance is E[x^2] - E[x]^2.
        centred: whether the mean is subtracted, from the values and in their variance.
        lost: degrees of freedom that the variance leaves out.
        offset: number added to the gain.
        biased: whether the bias is added.
    """
    twin, norm = here.twin, here.module
    wide = twin.widened(x)
    mean = wide.mean(axis=-1, keepdims=True) if centred else here.xp.zeros_like(wide[..., :1])
    if one_pass:
        variance = (wide * wide).mean(axis=-1, keepdims=True) - mean * mean
    else:
        variance = ((wide - mean) ** 2).mean(axis=-1, keepdims=True)
    size = x.shape[-1]
    variance = variance * (size / (size - lost))
    y = (wide - mean) / here.xp.sqrt(variance + epsilon * twin.epsilon(norm))
    y = y * (twin.widened(twin.weight(norm)) + offset)
    y = y + twin.widened(twin.bias(norm)) if biased else y
    return twin.cast(y, str(x.dtype).removeprefix("torch."))


@fault(
    "the one-pass variance E[x^2] - E[x]^2 (in float64 it needs --token-offset 1000 to be seen)",
    NORM,
    None,
    at=NORMS,
    twin="jax",
    norm="layernorm",
)
def _fast_variance(here: Here, norm: Callable, x: Any) -> Any:
    return layer_norm(here, x, one_pass=True)


def plain_sum(x: Any, branch: Any) -> Any:
    """Return the residual sum."""
    return x + branch


def two_lines(
    here: Here,
    x: Any,
    options: dict[str, Any],
    *,
    attention: Callable[[Any, Any], Any] = plain_sum,
    mlp: Callable[[Any, Any], Any] = plain_sum,
) -> Any:
    """Compute a pre-norm block whose branches join the stream by these functions."""
    block = here.module
    draw = {name: value for name, value in options.items() if name == "rngs"}
    y, weights = block.attn(block.norm1(x), **options)
    x = attention(x, block.drop_path1(block.ls1(y), **draw))
    x = mlp(x, block.drop_path2(block.ls2(block.mlp(block.norm2(x), **draw)), **draw))
    return x, weights


@fault(
    "the residual around attention dropped", BLOCK, "residual-left-out", block="pre_norm", num_parallel=1
)
def _dropped_residual(here: Here, block: Callable, x: Any, **options: Any) -> Any:
    return two_lines(here, x, options, attention=lambda x, branch: branch)


@fault("positions cut off from the gradient; the forward pass is right", "pos_embed", "detached",
       at="", method="position_table", stage="backward", pos_embed="learned")  # fmt: skip
def _detached_positions(here: Here, position_table: Callable, *args: Any) -> Any:
    return here.twin.detached(position_table(*args))
