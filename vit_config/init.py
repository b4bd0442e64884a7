"""Initial values as data: the distribution that each parameter is drawn from, the same in both twins.

Recipes
    ``timm``: linear weights normal with deviation 0.02, their biases 0; positions the same; class token
        and registers normal with deviation 1e-6; the patch convolution as torch; the gate of a SwiGLU
        nearly shut to a constant 1 (timm ``init_weights_vit_timm``, whose truncation at +-2 is one at a
        hundred deviations).
    ``timm_by_depth``: as ``timm``, but the last projection of each branch divided by sqrt(2 (block + 1))
        (timm ``NaFlexVit.fix_init_weight``).
    ``timm_truncated``: as ``timm``, but cut at two deviations, as JAX's ``truncated_normal`` means it:
        the real deviation is 0.0176; gates are drawn like every layer.
    ``jax``: as ``timm``, but linear weights Xavier-uniform, MLP biases normal with deviation 1e-6, the
        head 0, the patch convolution and the tanh layer before the head LeCun-normal (timm
        ``init_weights_vit_jax``, after Google's ViT).
    ``eva``: as ``timm``, but tokens drawn like positions, the last projection of each branch divided by
        sqrt(2 (block + 1)), the head by 1000, and gates drawn like every layer (BEiT, arXiv 2106.08254;
        timm ``Eva.init_weights``).
    ``torch``: what torch's layers do by themselves - weights and biases uniform in
        +-1/sqrt(fan_in) - and tokens and positions standard normal.
    ``torch_mha``: as ``torch``, but q, k, v Xavier-uniform and attention biases 0, as
        ``torch.nn.MultiheadAttention`` does.
    ``torch_uniform_tokens``: as ``torch``, but tokens uniform in [0, 1).
    ``xavier_normal``: every tensor of two or more dimensions - tokens and positions included -
        Xavier-normal with torch's fan rule; biases as ``torch``.

In every recipe the embeddings of text tokens are drawn like positions, norms start at weight 1 and bias
0, bounds at infinity, layer scales at the schema's value, relative positions at 0, the query of
attention pooling truncated normal with deviation 1/sqrt(D) cut at two, the vectors of a differential
lambda normal with deviation 0.1, and learned rotary frequencies at those of fixed ones, turned by one
random angle for each block and head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from vit_config.schema import ViTConfig

Kind = Literal["linear", "conv", "norm", "param", "fixed"]
"""Kind of the layer that a parameter belongs to; ``param`` is a parameter outside of such layers, and
``fixed`` one that no training changes: it has no gradient and no decay."""
_FIXED = ("bounds", "std_bias", "std_scale")


def is_fixed(name: str) -> bool:
    """Return whether a parameter, by its name or the last part of it, is ``fixed``."""
    return name.rpartition(".")[2] in _FIXED


class Draw(NamedTuple):
    """A distribution of independent values; ``rotary`` is one of pairs (see `rotary_scale`)."""

    kind: Literal["constant", "uniform", "normal", "truncated_normal", "rotary"]
    a: float
    """The constant, the lower end, the mean, or the base of rotary frequencies."""
    b: float = 0.0
    """The upper end, or the standard deviation before truncation."""
    bound: float = 0.0
    """A truncated normal is cut at mean +- bound."""


Draws = tuple[Draw, ...]
"""The distribution of a parameter; several divide its first axis (in PyTorch's layout) evenly."""

ZERO: Draws = (Draw("constant", 0.0),)
LOGITS = {"logit_scale": math.log(1 / 0.07), "logit_bias": 0.0}
"""Scale and bias of the similarities of texts and images (arXiv 2103.00020, section 2.5)."""
_ONE: Draws = (Draw("constant", 1.0),)
_LIKE_TIMM = ("timm", "timm_by_depth", "timm_truncated", "eva", "jax")


def initial_draws(
    cfg: ViTConfig, kinds: Mapping[str, Kind], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Draws]:
    """Return the distribution of every parameter.

    Args:
        kinds: kind of layer by parameter name.
        shapes: shape by parameter name, in PyTorch's layout (output dimension first).
    """
    return {name: _draws(cfg, name, kind, shapes) for name, kind in kinds.items()}


def rotary_scale(base: float, half: int) -> list[float]:
    """Return the d / 4 frequencies base^(-4i/d) that a ``rotary`` draw turns, from half = d / 2.

    Of shape (2, depth, h, d / 2), a draw is [f cos t, -f sin t] along one axis and [f sin t, f cos t]
    along the other, with one angle t, uniform in [0, 2 pi), per block and head (arXiv 2403.13298).
    """
    return [base ** (-2 * i / half) for i in range(half // 2)]


def _draws(cfg: ViTConfig, name: str, kind: Kind, shapes: Mapping[str, tuple[int, ...]]) -> Draws:
    leaf = name.rsplit(".", 1)[-1]
    if leaf == "bounds":
        return (Draw("constant", -math.inf), Draw("constant", math.inf)) * (shapes[name][0] // 2)
    if kind == "fixed":
        return ZERO if leaf == "std_bias" else _ONE
    if kind == "norm":
        return _norm_draws(cfg, name, leaf)
    if leaf == "gamma":
        return (Draw("constant", cfg.layer_scale or 0.0),)
    if leaf in LOGITS:
        return (Draw("constant", LOGITS[leaf]),)
    if leaf in ("cls_token", "dist_token", "reg_token", "token_embed") or leaf.startswith("pos_embed"):
        return _token_draws(cfg, leaf, shapes[name])
    if leaf == "latent":
        deviation = shapes[name][-1] ** -0.5
        return (Draw("truncated_normal", 0.0, deviation, bound=2 * deviation),)
    if leaf.startswith("lambda_"):
        return (Draw("normal", 0.0, 0.1),)
    if leaf == "freqs" and cfg.rope is not None:
        return (Draw("rotary", cfg.rope.theta),)
    if leaf == "table":
        return ZERO
    return _layer_draws(cfg, name, kind, leaf, shapes)


def _norm_draws(cfg: ViTConfig, name: str, leaf: str) -> Draws:
    if leaf == "bias":
        return ZERO
    ends_branch = cfg.block == "res_post" and name.split(".")[-2] in ("norm1", "norm2")
    return (Draw("constant", cfg.layer_scale),) if ends_branch and cfg.layer_scale else _ONE


def _token_draws(cfg: ViTConfig, leaf: str, shape: tuple[int, ...]) -> Draws:
    if cfg.init in _LIKE_TIMM:
        if leaf not in ("cls_token", "reg_token") or cfg.init == "eva":
            return (_narrow(cfg),)
        return (Draw("normal", 0.0, 1e-6),)
    if cfg.init == "xavier_normal":
        return (_xavier_normal(shape),)
    if cfg.init == "torch_uniform_tokens" and not leaf.startswith("pos_embed"):
        return (Draw("uniform", 0.0, 1.0),)
    return (Draw("normal", 0.0, 1.0),)


def _layer_draws(
    cfg: ViTConfig, name: str, kind: Kind, leaf: str, shapes: Mapping[str, tuple[int, ...]]
) -> Draws:
    is_bias = leaf.endswith("bias")
    shape = shapes[_weight_of(name)] if is_bias else shapes[name]
    if cfg.init == "xavier_normal" and not is_bias:
        return (_xavier_normal(shape),)
    if leaf.startswith("qkv_"):  # (3, heads, d_in, d_out): a stack of d_out x d_in layers
        shape = (shape[-1], shape[-2])
    if cfg.init == "eva" and kind != "conv":
        return ZERO if is_bias else (_eva_draw(cfg, name),)
    if cfg.init in _LIKE_TIMM:
        return _with_shut_gate(cfg, name, _timm_draw(cfg, name, kind, is_bias, shape))
    if cfg.init == "torch_mha" and ".attn." in f".{name}":
        if is_bias:
            return ZERO
        if "qkv" in name:
            return (_xavier_uniform(shape),)
    return (_torch_draw(shape),)


def _weight_of(name: str) -> str:
    """Name the weight whose product a bias is added to."""
    path, _, leaf = name.rpartition(".")
    weight = {"bias": "weight", "qkv_bias": "qkv_weight", "mlp_bias": "in_proj.weight"}
    return f"{path}.{weight.get(leaf, 'qkv.weight')}"


def _eva_draw(cfg: ViTConfig, name: str) -> Draw:
    module = name.rpartition(".")[0]
    return _narrow(cfg, 1000.0) if module == "head" else _by_depth(cfg, name)


def _by_depth(cfg: ViTConfig, name: str) -> Draw:
    """Return a narrow normal, narrower for the last projection of a branch the deeper its block is."""
    module = name.rpartition(".")[0]
    if name.startswith("blocks.") and module.endswith(("attn.proj", "mlp.fc2", "out_proj")):
        return _narrow(cfg, math.sqrt(2.0 * (int(name.split(".")[1]) + 1)))
    return _narrow(cfg)


def _timm_draw(cfg: ViTConfig, name: str, kind: Kind, is_bias: bool, shape: tuple[int, ...]) -> Draw:
    if cfg.init == "jax":
        return _jax_draw(cfg, name, kind, is_bias, shape)
    if kind == "conv":
        return _torch_draw(shape)
    if is_bias:
        return Draw("constant", 0.0)
    if cfg.init == "timm_by_depth":
        return _by_depth(cfg, name)
    return _narrow(cfg)


def _with_shut_gate(cfg: ViTConfig, name: str, draw: Draw) -> Draws:
    module = name.rpartition(".")[0]
    shut = Draw("constant", 1.0) if name.endswith("bias") else Draw("normal", 0.0, 1e-6)
    if cfg.init == "timm_truncated":
        return (draw,)
    if module.endswith("fc1_g"):
        return (shut,)
    if cfg.mlp == "swiglu_packed" and module.endswith("mlp.fc1") and name.startswith("blocks."):
        return draw, shut  # timm shuts the second half, though it is the first that gates
    return (draw,)


def _jax_draw(cfg: ViTConfig, name: str, kind: Kind, is_bias: bool, shape: tuple[int, ...]) -> Draw:
    if name.startswith("head"):
        return Draw("constant", 0.0)
    if is_bias:
        mlp = "mlp" in name and not name.endswith("mlp_bias")
        return Draw("normal", 0.0, 1e-6) if mlp else Draw("constant", 0.0)
    if kind == "conv" or name == "pre_logits.weight":
        # LeCun-normal: cut at two deviations, then widened to the intended deviation
        deviation = math.sqrt(1.0 / _fans(shape)[0]) / 0.87962566103423978
        return Draw("truncated_normal", 0.0, deviation, bound=2 * deviation)
    return _xavier_uniform(shape)


def _narrow(cfg: ViTConfig, divisor: float = 1.0) -> Draw:
    """Return a normal of deviation 0.02, divided; cut at two deviations if the recipe says so.

    torch and timm truncate at +-2. No cut is drawn for that: the ways of samplers to hold a cut at a
    hundred deviations are worse than none (JAX's returns -2 itself for one value in 2^23).
    """
    if cfg.init == "timm_truncated":
        return Draw("truncated_normal", 0.0, 0.02, bound=0.04)
    return Draw("normal", 0.0, 0.02 / divisor)


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (fan_in, fan_out) by torch's rule: the first two dimensions, times all others."""
    behind = math.prod(shape[2:])
    return shape[1] * behind, shape[0] * behind


def _torch_draw(shape: tuple[int, ...]) -> Draw:
    """Return torch's reset_parameters: kaiming_uniform_(a=sqrt(5)), and the same bound for the bias."""
    bound = 1.0 / math.sqrt(_fans(shape)[0])
    return Draw("uniform", -bound, bound)


def _xavier_uniform(shape: tuple[int, ...]) -> Draw:
    bound = math.sqrt(6.0 / sum(_fans(shape)))
    return Draw("uniform", -bound, bound)


def _xavier_normal(shape: tuple[int, ...]) -> Draw:
    return Draw("normal", 0.0, math.sqrt(2.0 / sum(_fans(shape))))
