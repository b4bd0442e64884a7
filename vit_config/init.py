"""Initial values as data: which distribution each parameter is drawn from, the same in both twins.

Recipes
    ``timm``: linear weights truncated normal with standard deviation 0.02 as torch means it (cut at
        +-2, not at two deviations), their biases 0; positions the same; class token and registers
        normal with deviation 1e-6; the patch convolution as torch (timm ``init_weights_vit_timm``).
    ``torch``: what torch's layers do by themselves - weights and biases uniform in
        +-1/sqrt(fan_in) - and tokens and positions standard normal.
    ``torch_mha``: as ``torch``, but q, k, v Xavier-uniform and attention biases 0, as
        ``torch.nn.MultiheadAttention`` does.
    ``torch_uniform_tokens``: as ``torch``, but tokens uniform in [0, 1).
    ``xavier_normal``: every tensor of two or more dimensions - tokens and positions included -
        Xavier-normal with torch's fan rule; biases as ``torch``.

Norm layers start at weight 1 and bias 0 and layer scales at the schema's value in every recipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from vit_config.schema import ViTConfig

Kind = Literal["linear", "conv", "norm", "param"]
"""What kind of layer a parameter belongs to; ``param`` is a bare one."""


class Draw(NamedTuple):
    """A distribution of independent values."""

    kind: Literal["constant", "uniform", "normal", "truncated_normal"]
    a: float
    """The constant, the lower end, or the mean."""
    b: float = 0.0
    """The upper end, or the standard deviation before truncation."""
    bound: float = 0.0
    """A truncated normal is cut at mean +- bound."""


def initial_draws(
    cfg: ViTConfig, kinds: Mapping[str, Kind], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Draw]:
    """The distribution of every parameter.

    Args:
        kinds: kind of layer by parameter name.
        shapes: shape by parameter name, in PyTorch's layout (output dimension first).
    """
    return {name: _draw(cfg, name, kind, shapes) for name, kind in kinds.items()}


def _draw(cfg: ViTConfig, name: str, kind: Kind, shapes: Mapping[str, tuple[int, ...]]) -> Draw:
    leaf = name.rsplit(".", 1)[-1]
    if kind == "norm":
        return Draw("constant", 1.0 if leaf == "weight" else 0.0)
    if leaf == "gamma":
        return Draw("constant", cfg.layer_scale or 0.0)
    if leaf in ("cls_token", "reg_token", "pos_embed"):
        return _token_draw(cfg, leaf, shapes[name])
    return _layer_draw(cfg, name, kind, leaf, shapes)


def _token_draw(cfg: ViTConfig, leaf: str, shape: tuple[int, ...]) -> Draw:
    if cfg.init == "timm":
        if leaf == "pos_embed":
            return Draw("truncated_normal", 0.0, 0.02, bound=2.0)
        return Draw("normal", 0.0, 1e-6)
    if cfg.init == "xavier_normal":
        return _xavier_normal(shape)
    if cfg.init == "torch_uniform_tokens" and leaf != "pos_embed":
        return Draw("uniform", 0.0, 1.0)
    return Draw("normal", 0.0, 1.0)


def _layer_draw(
    cfg: ViTConfig, name: str, kind: Kind, leaf: str, shapes: Mapping[str, tuple[int, ...]]
) -> Draw:
    is_bias = leaf.endswith("bias")
    weight_shape = shapes[name[: -len("bias")] + "weight"] if is_bias else shapes[name]
    in_attention = ".attn." in f".{name}"
    if cfg.init == "timm" and kind != "conv":
        return Draw("constant", 0.0) if is_bias else Draw("truncated_normal", 0.0, 0.02, bound=2.0)
    if cfg.init == "xavier_normal" and not is_bias:
        return _xavier_normal(weight_shape)
    if cfg.init == "torch_mha" and in_attention:
        if is_bias:
            return Draw("constant", 0.0)
        if "qkv" in name:
            bound = math.sqrt(6.0 / sum(_fans(weight_shape)))
            return Draw("uniform", -bound, bound)
    # torch's reset_parameters: kaiming_uniform_(a=sqrt(5)) and the same bound for the bias
    per_head = kind == "param"  # (3, heads, d_in, d_out): a stack of d_out x d_in layers
    fan_in = weight_shape[-2] if per_head else _fans(weight_shape)[0]
    bound = 1.0 / math.sqrt(fan_in)
    return Draw("uniform", -bound, bound)


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """(fan_in, fan_out) by torch's rule: the first two dimensions, times what lies behind them."""
    behind = math.prod(shape[2:])
    return shape[1] * behind, shape[0] * behind


def _xavier_normal(shape: tuple[int, ...]) -> Draw:
    return Draw("normal", 0.0, math.sqrt(2.0 / sum(_fans(shape))))
