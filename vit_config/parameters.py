"""The parameters of a schema - names, shapes, kinds of layer - known without building a model."""

from __future__ import annotations

from typing import NamedTuple

from vit_config.init import Kind
from vit_config.numerics.tables import count_relative_positions
from vit_config.schema import ViTConfig
from vit_config.text import TextConfig


class Parameter(NamedTuple):
    """One parameter of a model."""

    shape: tuple[int, ...]
    """Shape in PyTorch's layout."""
    kind: Kind
    """Kind of the layer that holds the parameter."""


Parameters = dict[str, Parameter]
"""Parameters by their name in the model, or in a part of one."""


def parameters(cfg: ViTConfig) -> Parameters:
    """Return every parameter of the schema's model by its name in both twins, in the order in which
    the forward pass meets them."""
    D = cfg.hidden_size
    params = _under("patch_embed", _patch_embed(cfg)) | _tokens(cfg) | _under("rope", _rope(cfg))
    if cfg.pre_norm:
        params |= _norm(cfg, "norm_pre", D)
    for index in range(cfg.depth):
        params |= _under(f"blocks.{index}", _block(cfg, index))
    if cfg.final_norm == "pre_pool" and cfg.final_norm_affine:
        params |= _norm(cfg, "norm", D)
    if cfg.pool == "map":
        params |= _under("attn_pool", _attention_pool(cfg))
    if cfg.pool_standardise:
        params |= {f"pool.{name}": Parameter((D,), "fixed") for name in ("std_bias", "std_scale")}
    if cfg.final_norm == "post_pool" and cfg.final_norm_affine:
        params |= _norm(cfg, "fc_norm", D)
    return params | _head(cfg)


def text_parameters(cfg: TextConfig) -> Parameters:
    """Return every parameter of a text tower by its name in both twins."""
    D, encoder = cfg.hidden_size, cfg.encoder
    params = {
        "token_embed": Parameter((cfg.vocab_size, D), "param"),
        "pos_embed": Parameter((cfg.context_length, D), "param"),
    }
    for index in range(cfg.depth):
        params |= _under(f"blocks.{index}", _block(encoder, index))
    params |= _norm(encoder, "norm", D)
    if cfg.projection_dim is not None:
        params |= _linear("head", D, cfg.projection_dim, bias=cfg.projection_bias)
    scalars = ("logit_scale", "logit_bias")
    return params | {name: Parameter((), "param") for name in scalars if getattr(cfg, name)}


def _patch_embed(cfg: ViTConfig) -> Parameters:
    D, params = cfg.hidden_size, {}
    if cfg.patch_input_norm:
        params |= _norm(cfg, "norm_in", cfg.patch_dim)
    if cfg.patch_embed == "conv":
        params["proj.weight"] = Parameter((D, cfg.in_channels, *cfg.patch_size), "conv")
        if cfg.patch_bias:
            params["proj.bias"] = Parameter((D,), "conv")
    else:
        params |= _linear("proj", cfg.patch_dim, D, bias=cfg.patch_bias)
    return params | (_norm(cfg, "norm", D) if cfg.patch_norm else {})


def _tokens(cfg: ViTConfig) -> Parameters:
    rows = {
        "cls_token": int(cfg.class_token),
        "dist_token": int(cfg.distill_token),
        "reg_token": cfg.register_tokens,
    }
    params = {name: Parameter((1, n, cfg.hidden_size), "param") for name, n in rows.items() if n}
    return params | {name: Parameter(shape, "param") for name, shape in cfg.table_shapes.items()}


def _rope(cfg: ViTConfig) -> Parameters:
    if cfg.rope is None or cfg.rope.kind != "mixed":
        return {}
    return _bare("freqs", 2, cfg.depth, cfg.num_heads, cfg.head_dim // 2)


def _block(cfg: ViTConfig, index: int) -> Parameters:
    if cfg.num_parallel > 1:
        return _branches_block(cfg, index)
    if cfg.block == "parallel":
        return _parallel_block(cfg)
    norm1, norm2, norm3, norm4 = (_norm(cfg, f"norm{n}", cfg.hidden_size) for n in (1, 2, 3, 4))
    attention, mlp = _under("attn", _attention(cfg, index)), _under("mlp", _mlp(cfg))
    if cfg.block == "sandwich":
        return norm1 | attention | norm2 | norm3 | mlp | norm4
    if cfg.block == "res_post":
        return attention | norm1 | mlp | norm2
    first = norm1 | attention | _layer_scale(cfg, "ls1", "attention")
    return first | norm2 | mlp | _layer_scale(cfg, "ls2", "mlp")


def _branches_block(cfg: ViTConfig, index: int) -> Parameters:
    norm, params = _norm(cfg, "norm", cfg.hidden_size), {}
    attention = norm | _under("attn", _attention(cfg, index)) | _layer_scale(cfg, "ls", "attention")
    mlp = norm | _under("mlp", _mlp(cfg)) | _layer_scale(cfg, "ls", "mlp")
    for name, branch in (("attns", attention), ("ffns", mlp)):
        for number in range(cfg.num_parallel):
            params |= _under(f"{name}.{number}", branch)
    return params


def _parallel_block(cfg: ViTConfig) -> Parameters:
    D, M = cfg.hidden_size, cfg.mlp_dim
    params = _norm(cfg, "in_norm", D) | _linear("in_proj", D, M + 3 * D, bias=cfg.qkv_bias)
    if cfg.mlp_bias and not cfg.qkv_bias:
        params |= _bare("mlp_bias", M)
    params |= _heads(cfg)
    if cfg.attention == "differential":
        params |= _linear("out_proj", D + M, D, bias=cfg.attention_out_bias)
    else:
        params |= _linear("attn_out_proj", D, D, bias=cfg.attention_out_bias)
        params |= _linear("mlp_out_proj", M, D, bias=cfg.mlp_bias)
    return params | _layer_scale(cfg, "ls", "both")


def _attention(cfg: ViTConfig, index: int) -> Parameters:
    D, width = cfg.hidden_size, cfg.attention_width
    params = _per_head_qkv(cfg) if cfg.attention == "per_head" else _qkv(cfg, index)
    params |= _heads(cfg)
    if cfg.rel_pos_bias:
        params |= _bare("rel_pos_bias.table", count_relative_positions(cfg.grid), cfg.num_heads)
    if cfg.attention_norm:
        params |= _norm(cfg, "norm", width)
    if cfg.attention_out_proj:
        params |= _linear("proj", width, D, bias=cfg.attention_out_bias) | _bounds(cfg, "proj")
    return params


def _qkv(cfg: ViTConfig, index: int) -> Parameters:
    q_width, kv_width = cfg.attention_width, cfg.kv_heads[index] * cfg.head_dim
    joint_bias = cfg.qkv_bias and cfg.k_bias
    params = _linear("qkv", cfg.hidden_size, q_width + 2 * kv_width, bias=joint_bias)
    params |= _bounds(cfg, "qkv", 3)
    if cfg.qkv_bias and not cfg.k_bias:
        params |= _bare("q_bias", q_width) | _bare("v_bias", kv_width)
    return params


def _per_head_qkv(cfg: ViTConfig) -> Parameters:
    h, d = cfg.num_heads, cfg.head_dim
    return _bare("qkv_weight", 3, h, d, d) | (_bare("qkv_bias", 3, h, d) if cfg.qkv_bias else {})


def _heads(cfg: ViTConfig) -> Parameters:
    """Return the norms of queries and keys, and the parameters of differential heads."""
    differential, params = cfg.attention == "differential", {}
    d = cfg.head_dim // 2 if differential else cfg.head_dim
    if cfg.qk_norm:
        params |= _norm(cfg, "q_norm", d) | _norm(cfg, "k_norm", d)
    if differential:
        for vector in ("q1", "k1", "q2", "k2"):
            params |= _bare(f"lambda_{vector}", d)
        params["sub_norm.weight"] = Parameter((cfg.head_dim,), "norm")  # RMSNorm in every schema
    return params


def _mlp(cfg: ViTConfig) -> Parameters:
    D, M, bias = cfg.hidden_size, cfg.mlp_dim, cfg.mlp_bias
    width = 2 * M if cfg.mlp == "swiglu_packed" else M
    params = {}
    for name in ("fc1_g", "fc1_x") if cfg.mlp == "swiglu" else ("fc1",):
        params |= _linear(name, D, width, bias=bias) | _bounds(cfg, name)
    if cfg.mlp_norm:
        params |= _norm(cfg, "norm", M)
    return params | _linear("fc2", M, D, bias=bias) | _bounds(cfg, "fc2")


def _attention_pool(cfg: ViTConfig) -> Parameters:
    D = cfg.hidden_size
    params = _bare("latent", 1, 1, D) | _linear("q", D, D) | _linear("kv", D, 2 * D)
    params |= _linear("proj", D, D) | _norm(cfg, "norm", D)
    return params | _under("mlp", _mlp(cfg.pool_mlp))


def _head(cfg: ViTConfig) -> Parameters:
    inputs, hidden = cfg.head_inputs, cfg.head_hidden
    params = _linear("pre_logits", inputs, hidden) if hidden else {}
    if not cfg.num_classes:
        return params
    params |= _linear("head", hidden or inputs, cfg.num_classes, bias=cfg.head_bias)
    if cfg.distill_token:
        params |= _linear("head_dist", cfg.hidden_size, cfg.num_classes, bias=cfg.head_bias)
    return params


def _linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Parameters:
    params = {f"{name}.weight": Parameter((outputs, inputs), "linear")}
    return params | ({f"{name}.bias": Parameter((outputs,), "linear")} if bias else {})


def _bounds(cfg: ViTConfig, name: str, parts: int = 1) -> Parameters:
    return {f"{name}.bounds": Parameter((4 * parts,), "fixed")} if cfg.linear_bounds else {}


def _norm(cfg: ViTConfig, name: str, size: int) -> Parameters:
    leaves = ("weight", "bias") if cfg.norm == "layernorm" else ("weight",)
    return {f"{name}.{leaf}": Parameter((size,), "norm") for leaf in leaves}


def _layer_scale(cfg: ViTConfig, name: str, branch: str) -> Parameters:
    scaled = cfg.layer_scale is not None and (branch != "mlp" or cfg.layer_scale_on == "both")
    return _bare(f"{name}.gamma", cfg.hidden_size) if scaled else {}


def _bare(name: str, *shape: int) -> Parameters:
    return {name: Parameter(shape, "param")}


def _under(path: str, params: Parameters) -> Parameters:
    return {f"{path}.{name}": parameter for name, parameter in params.items()}
