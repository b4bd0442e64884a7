"""A model of timm's, as it stands in memory, read into the schema; what is not supported is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

import torch
from timm_embeds import embeds_of, flex_embeds_of
from timm_gemma4 import CHECKED, gemma4_fields
from timm_understood import (
    ARGUMENTS,
    LAYERS,
    TORCH,
    TRAINING_ONLY,
    UNDERSTOOD,
    Fields,
    NotUnderstoodError,
    Timms,
    is_there,
    kind_of,
)

from parity.porting.dialects.records.timm import read_state
from vit_config import ConfigError, ViTConfig
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

T = TypeVar("T")
_ACTIVATIONS = {
    TORCH + "activation.GELU": "gelu",
    LAYERS + "activations.GELU": "gelu",
    LAYERS + "activations.GELUTanh": "gelu_tanh",
    LAYERS + "activations.QuickGELU": "quick_gelu",
    TORCH + "activation.SiLU": "silu",
    TORCH + "activation.ReLU": "relu",
}
_NORMS = {LAYERS + "norm.LayerNorm": "layernorm", LAYERS + "norm.RmsNorm": "rmsnorm"}
_MLPS = {
    LAYERS + "mlp.Mlp": "mlp",
    LAYERS + "mlp.SwiGLU": "swiglu",
    LAYERS + "mlp.GluMlp": "swiglu_packed",
}
_POOLS = {"token": "class", "avg": "mean", "map": "map"}


def read_schema(model: Timms, arguments: Iterable[str], loading: Fields) -> ViTConfig:
    """The schema of a model, all of whose tensors are accounted for.

    Args:
        model: a model of timm's; it may be on the meta device.
        arguments: names of the arguments it was made with.
        loading: the options with which timm fits a checkpoint's positions to the model.

    Raises:
        NotUnderstoodError: an unknown class, argument or option, a tensor that is not accounted for, or
            parts that differ where the schema has one word for all.
    """
    if strange := sorted(set(arguments) - ARGUMENTS - TRAINING_ONLY):
        raise NotUnderstoodError(f"arguments {', '.join(strange)}")
    gemma = type(model).__name__.startswith("Gemma4")
    try:
        for name, module in model.named_modules():
            if not (gemma and type(module).__name__ in CHECKED):
                _check_class(name or "the model", module)
        cfg = ViTConfig(**(gemma4_fields(model) if gemma else _fields(model, loading)))
    except (AttributeError, KeyError, ConfigError) as error:  # a part has moved, or parts contradict
        raise NotUnderstoodError(f"{type(error).__name__}: {error}") from None
    _check_tensors(cfg, model)
    return cfg


def _fields(model: Timms, loading: Fields) -> Fields:
    block = _one((_block(model, block) for block in model.blocks), "blocks")
    _check_lambdas(model)
    return {
        **(flex_embeds_of(model) if hasattr(model, "embeds") else embeds_of(model, loading)),
        **block,
        **_kv_heads(model),
        **_norms(model),
        **_head(model, block),
        "init": _init(model),
    }


def _check_class(name: str, module: Timms) -> None:
    kind = kind_of(module)
    if kind not in UNDERSTOOD:
        raise NotUnderstoodError(f"{name} is a {kind}")
    for attribute, value in UNDERSTOOD[kind].items():
        if (actual := getattr(module, attribute)) != value:
            raise NotUnderstoodError(f"{name}.{attribute} = {actual!r}, not {value!r}")
    if name.endswith("sub_norm") and (_NORMS.get(kind), module.eps) != ("rmsnorm", 1e-5):
        raise NotUnderstoodError(f"{name} is not an RmsNorm of eps 1e-5")


def _check_tensors(cfg: ViTConfig, model: Timms) -> None:
    """Hold the schema's own model against the names and shapes of this one's tensors."""
    state = read_state(model.state_dict(), join=torch.cat)
    actual = {name: tuple(tensor.shape) for name, tensor in state.items()}
    claim = {leaf.name: leaf.shape for leaf in leaves(abstract_model(cfg))}
    for name in sorted(claim.keys() | actual.keys()):
        if claim.get(name) != actual.get(name):
            shapes = f"{actual.get(name)}, by its schema {claim.get(name)}"
            raise NotUnderstoodError(f"tensor {name} of shape {shapes}")


def _init(model: Timms) -> str:
    if hasattr(model, "head_init_scale"):
        return "eva"
    return "timm_by_depth" if model.fix_init else "timm"


def _block(model: Timms, block: Timms) -> Fields:
    """The fields that are the same for every block."""
    kind = type(block).__name__
    if kind in ("ParallelScalingBlock", "DiffParallelScalingBlock"):
        return _parallel_scaling_block(model, block, differential=kind.startswith("Diff"))
    things = kind == "ParallelThingsBlock"
    post = kind in ("ResPostBlock", "EvaBlockPostNorm")
    attentions = [branch.attn for branch in block.attns] if things else [block.attn]
    mlps = [branch.mlp for branch in block.ffns] if things else [block.mlp]
    return {
        "depth": len(model.blocks),
        "block": "res_post" if post else "pre_norm",
        "num_parallel": len(attentions),
        **_one((_attention(model, attention) for attention in attentions), "attentions of a block"),
        **_one((_mlp(mlp) for mlp in mlps), "MLPs of a block"),
        **_layer_scale(block, post=post),
    }


def _attention(model: Timms, attention: Timms) -> Fields:
    differential = type(attention).__name__ == "DiffAttention"
    _check_heads(model, attention, differential=differential)
    rope = getattr(model, "rope", None)
    if rope is not None and attention.rotate_half != getattr(rope, "rotate_half", False):
        raise NotUnderstoodError(f"attn.rotate_half = {attention.rotate_half}, but not that of rope")
    if attention.qkv is None:
        layers = attention.q_proj, attention.k_proj, attention.v_proj
        q, k, v = (layer.bias is not None for layer in layers)
    elif attention.qkv.bias is not None:
        q, k, v = True, True, True
    else:
        q, v = (getattr(attention, name, None) is not None for name in ("q_bias", "v_bias"))
        k = False
    if q != v or (k and not q):
        raise NotUnderstoodError(f"biases of q, k, v: {q}, {k}, {v}")
    return {
        "num_heads": attention.num_heads,
        "attention": "differential" if differential else "fused",
        "qkv_bias": q,
        "k_bias": k or not q,
        "qk_norm": is_there(getattr(attention, "q_norm", None)),
        "attention_norm": is_there(getattr(attention, "norm", None)),
        "attention_out_bias": attention.proj.bias is not None,
    }


def _check_heads(model: Timms, attention: Timms, *, differential: bool) -> None:
    """Heads share the width evenly and scale by the root of their own."""
    parts = attention.num_heads * (2 if differential else 1)
    width = round(attention.scale**-2)
    if parts * width != model.embed_dim or not math.isclose(attention.scale, width**-0.5):
        raise NotUnderstoodError(
            f"attn.scale = {attention.scale} for {parts} parts of {model.embed_dim}"
        )
    prefix = getattr(attention, "num_prefix_tokens", model.num_prefix_tokens)
    if prefix != model.num_prefix_tokens:
        raise NotUnderstoodError(f"attn.num_prefix_tokens = {prefix}, not {model.num_prefix_tokens}")


def _check_lambdas(model: Timms) -> None:
    """What is added to lambda grows with the block as in arXiv 2410.05258, blocks counted from 0."""
    for index, block in enumerate(model.blocks):
        for module in block.modules():
            added = getattr(module, "lambda_init", None)
            if added is not None and not math.isclose(added, 0.8 - 0.6 * math.exp(-0.3 * index)):
                raise NotUnderstoodError(f"lambda_init = {added} in block {index}")


def _mlp(mlp: Timms) -> Fields:
    if kind_of(mlp) not in _MLPS:
        raise NotUnderstoodError(f"an MLP that is a {kind_of(mlp)}")
    return {
        "mlp": _MLPS[kind_of(mlp)],
        "mlp_dim": mlp.fc2.in_features,
        "act": _activation(mlp.act),
        "mlp_bias": mlp.fc2.bias is not None,
        "mlp_norm": is_there(mlp.norm),
    }


def _parallel_scaling_block(model: Timms, block: Timms, *, differential: bool) -> Fields:
    _check_heads(model, block, differential=differential)
    outputs = (block.out_proj,) * 2 if differential else (block.attn_out_proj, block.mlp_out_proj)
    return {
        "depth": len(model.blocks),
        "block": "parallel",
        "attention": "differential" if differential else "fused",
        "num_heads": block.num_heads,
        "qkv_bias": block.in_proj.bias is not None,
        "qk_norm": is_there(block.q_norm),
        "attention_out_bias": outputs[0].bias is not None,
        "mlp_dim": block.in_split[0],
        "act": _activation(block.mlp_act),
        "mlp_bias": outputs[1].bias is not None,
        "layer_scale": _gain(block.ls),
    }


def _layer_scale(block: Timms, *, post: bool) -> Fields:
    if post:  # EVA's block of this kind takes the argument and forgets it
        return {"layer_scale": getattr(block, "init_values", None)}
    if hasattr(block, "gamma_1"):
        gains = [
            None if gamma is None else block.init_values for gamma in (block.gamma_1, block.gamma_2)
        ]
    elif hasattr(block, "attns"):
        gains = [_one((_gain(b.ls) for b in bs), "gains") for bs in (block.attns, block.ffns)]
    else:
        gains = [_gain(block.ls1), _gain(block.ls2)]
    first, second = gains
    if second not in (None, first):
        raise NotUnderstoodError(f"gains of a block: {first} and {second}")
    return {"layer_scale": first, "layer_scale_on": "both" if second == first else "attention"}


def _kv_heads(model: Timms) -> Fields:
    """The one field that may differ from block to block."""
    heads = [m.num_kv_heads for b in model.blocks for m in b.modules() if hasattr(m, "num_kv_heads")]
    if not heads or heads == [block.attn.num_heads for block in model.blocks]:
        return {}
    return {"num_kv_heads": heads[0] if len(set(heads)) == 1 else tuple(heads)}


def _norms(model: Timms) -> Fields:
    modules = [
        module
        for name, module in model.named_modules()
        if kind_of(module) in _NORMS and not name.endswith("sub_norm")
    ]
    return {
        "norm": _one((_NORMS[kind_of(module)] for module in modules), "kinds of norm"),
        "norm_eps": _one((module.eps for module in modules), "eps of norms"),
    }


def _head(model: Timms, block: Fields) -> Fields:
    if model.global_pool not in _POOLS:
        raise NotUnderstoodError(f"global_pool = {model.global_pool!r}")
    pool, before, after = _POOLS[model.global_pool], is_there(model.norm), is_there(model.fc_norm)
    if before and after:
        raise NotUnderstoodError("a norm before the pool and one after it")
    fields = {
        "num_classes": model.num_classes,
        "final_norm": "pre_pool" if before else "post_pool" if after else "none",
        "pool": pool,
    }
    # EVA's attention pooling sees every token, without a flag that says so
    everyone = getattr(model, "pool_include_prefix", pool == "map")
    if pool != "class" and model.num_prefix_tokens:
        fields["pool_prefix"] = everyone
    if pool == "map":
        fields.update(_attention_pool(model.attn_pool, block))
    return fields


def _attention_pool(pool: Timms, block: Fields) -> Fields:
    """The fields of attention pooling that are not those of the blocks."""
    if (act := _activation(pool.mlp.act)) != block["act"]:
        raise NotUnderstoodError(f"activation {act} in attn_pool, {block['act']} in the blocks")
    heads, width = pool.num_heads, pool.mlp.fc1.out_features
    return {
        "pool_num_heads": None if heads == block["num_heads"] else heads,
        "pool_mlp_dim": None if width == block["mlp_dim"] else width,
    }


def _activation(module: Timms) -> str:
    if kind_of(module) not in _ACTIVATIONS:
        raise NotUnderstoodError(f"an activation that is a {kind_of(module)}")
    return _ACTIVATIONS[kind_of(module)]


def _gain(scale: Timms) -> float | None:
    return scale.init_values if is_there(scale) else None


def _one(values: Iterable[T], what: str) -> T:
    """The value that all have in common."""
    first, *rest = values
    if strange := [value for value in rest if value != first]:
        raise NotUnderstoodError(f"{what} differ: {first} and {strange[0]}")
    return first
