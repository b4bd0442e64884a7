"""Fields of a schema that follow from the names and shapes of a model's parameters.

The others - heads, epsilon, which GELU, the pooling - do not follow from shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from vit_config import WeightsError
from vit_config.errors import OtherModelError

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

RANKS = {
    r"patch_embed\.proj\.weight": (2, 4),
    r"pos_embed|reg_token": (3,),
    r"(head|pre_logits|attn_pool\.mlp\.fc1)\.weight": (2,),
    r"blocks\.\d+\..*(proj|fc1|fc2)\.weight": (2,),
}
"""Allowed numbers of axes of a tensor, by regular expression of its name."""


def fields_of(shapes: Shapes) -> dict[str, Any]:
    """Return the fields of a schema that follow from its parameters' shapes.

    Args:
        shapes: shapes by the twins' names, in PyTorch's layout.

    Raises:
        WeightsError: there is no patch projection or no block, so this is no Vision Transformer.
    """
    _check_ranks(shapes)
    return {
        **_patch(shapes),
        **_tokens(shapes),
        **_positions(shapes),
        **_block(shapes),
        **_head(shapes, _block(shapes)["mlp_dim"]),
    }


def square_grid(shapes: Shapes, fields: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the square grid that a position table is for; None if there is none or not a unique one.

    The grid may be square both with rows for the tokens before the patches and without them.
    """
    table = shapes.get("pos_embed")
    if table is None:
        return None
    sides = {side for side, _ in _prefixes(table[1], fields)}
    if len(sides) != 1:
        return None
    (side,) = sides
    return side, side


def _prefixes(rows: int, fields: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the side of each square grid that may have `rows` rows, and which tokens have one too."""
    tokens = prefix_tokens(fields)
    options = {tokens: "all", 0: "none"}
    if fields["class_token"] and tokens > 1:
        options[1] = "class"
    grids = []
    for before, name in options.items():
        side = math.isqrt(max(rows - before, 0))
        if side and side * side == rows - before:
            grids.append((side, name))
    return grids


def prefix_tokens(fields: Mapping[str, Any]) -> int:
    """Return how many tokens stand before the patches."""
    return int(fields["class_token"]) + int(fields["distill_token"]) + fields["register_tokens"]


def prefix_rows(rows: int, patches: int, fields: Mapping[str, Any]) -> str | None:
    """Return which tokens before the patches have a row in the table: auto (all), class or none; None if
    the number of rows fits no choice."""
    tokens, before = prefix_tokens(fields), rows - patches
    if before == tokens:
        return "auto"
    if before == 0:
        return "none"
    if before == 1 and fields["class_token"]:
        return "class"
    return None


def _check_ranks(shapes: Shapes) -> None:
    """Refuse tensors with a wrong number of axes, if fields are read from their shapes."""
    for name, shape in shapes.items():
        for pattern, ranks in RANKS.items():
            if re.fullmatch(pattern, name) and len(shape) not in ranks:
                words = " or ".join(map(str, ranks))
                raise WeightsError(f"{name}: has shape {tuple(shape)}, expected {words} axes")


def _patch(shapes: Shapes) -> dict[str, Any]:
    weight = shapes.get("patch_embed.proj.weight")
    if weight is None or len(weight) not in (2, 4):
        raise OtherModelError("no patch projection; this is not a Vision Transformer")
    fields: dict[str, Any] = {
        "hidden_size": weight[0],
        "patch_bias": "patch_embed.proj.bias" in shapes,
        "patch_norm": "patch_embed.norm.weight" in shapes,
        "patch_input_norm": "patch_embed.norm_in.weight" in shapes,
    }
    if len(weight) == 4:
        return {**fields, "patch_embed": "conv", "in_channels": weight[1], "patch_size": weight[2:]}
    return fields


def _tokens(shapes: Shapes) -> dict[str, Any]:
    return {
        "class_token": "cls_token" in shapes,
        "distill_token": "dist_token" in shapes,
        "register_tokens": shapes["reg_token"][1] if "reg_token" in shapes else 0,
        "pre_norm": "norm_pre.weight" in shapes,
    }


def _positions(shapes: Shapes) -> dict[str, Any]:
    kinds = {"pos_embed": "learned", "pos_embed_y": "factorized"}
    tables = [kind for name, kind in kinds.items() if name in shapes]
    learned = {"pos_embed": tables[0]} if tables else {}
    return {**learned, "rel_pos_bias": any(name.endswith("rel_pos_bias.table") for name in shapes)}


def _block(shapes: Shapes) -> dict[str, Any]:
    numbers = {int(name.split(".")[1]) for name in shapes if re.match(r"blocks\.\d+\.", name)}
    if not numbers:
        raise OtherModelError("no blocks; this is not a Vision Transformer")
    if (gap := next((i for i in range(len(numbers)) if i not in numbers), None)) is not None:
        raise WeightsError(f"block {gap} is missing: the last is {max(numbers)}")
    block = {
        name.removeprefix("blocks.0."): shape
        for name, shape in shapes.items()
        if name.startswith("blocks.0.")
    }
    depth = {"depth": max(numbers) + 1}
    if "in_proj.weight" in block:
        return {**depth, **_parallel(block)}
    attns = {int(name.split(".")[1]) for name in block if name.startswith("attns.")}
    if attns:
        block = {_plain(name): shape for name, shape in block.items() if _plain(name)}
    return {
        **depth,
        "num_parallel": len(attns) or 1,
        **({"block": "sandwich"} if "norm4.weight" in block else {}),
        "linear_bounds": "mlp.fc2.bounds" in block,
        **_attention(block),
        **_mlp(block),
        **_scale(block, "ls1.gamma", "ls2.gamma"),
    }


def _plain(name: str) -> str:
    """Return the name in a plain block of a tensor of the first parallel branch; empty for others."""
    for kind, scale, norm in (("attns.0.", "ls1", "norm1"), ("ffns.0.", "ls2", "norm2")):
        if name.startswith(kind):
            return re.sub(r"^ls\b", scale, re.sub(r"^norm\b", norm, name.removeprefix(kind)))
    return ""


def _attention(block: Shapes) -> dict[str, Any]:
    kind = "fused"
    if "attn.qkv_weight" in block:
        kind = "per_head"
    elif "attn.lambda_q1" in block:
        kind = "differential"
    biases = [name for name in ("attn.qkv.bias", "attn.q_bias", "attn.qkv_bias") if name in block]
    return {
        "attention": kind,
        "qkv_bias": bool(biases),
        "k_bias": "attn.q_bias" not in block,
        "qk_norm": "attn.q_norm.weight" in block,
        "attention_norm": "attn.norm.weight" in block,
        "attention_out_proj": "attn.proj.weight" in block,
        "attention_out_bias": "attn.proj.bias" in block,
        "norm": "layernorm" if "norm1.bias" in block else "rmsnorm",
    }


def _mlp(block: Shapes) -> dict[str, Any]:
    out = block.get("mlp.fc2.weight", (0, 0))
    kind = "mlp"
    if "mlp.fc1_g.weight" in block:
        kind = "swiglu"
    elif block.get("mlp.fc1.weight", (0,))[0] == 2 * out[1]:
        kind = "swiglu_packed"
    return {
        "mlp": kind,
        "mlp_dim": out[1],
        "mlp_bias": "mlp.fc2.bias" in block,
        "mlp_norm": "mlp.norm.weight" in block,
    }


def _scale(block: Shapes, attention: str, mlp: str) -> dict[str, Any]:
    if attention not in block:
        return {}
    return {"layer_scale_on": "both" if mlp in block else "attention"}


def _parallel(block: Shapes) -> dict[str, Any]:
    width = block["in_proj.weight"][1]
    out = "out_proj" if "out_proj.weight" in block else "attn_out_proj"
    biased = {}
    if "mlp_out_proj.weight" in block or "in_proj.bias" not in block:
        biased = {"mlp_bias": "mlp_bias" in block or "mlp_out_proj.bias" in block}
    return {
        **biased,
        "block": "parallel",
        "attention": "differential" if "lambda_q1" in block else "fused",
        "mlp_dim": block["in_proj.weight"][0] - 3 * width,
        "qkv_bias": "in_proj.bias" in block,
        "qk_norm": "q_norm.weight" in block,
        "attention_out_bias": f"{out}.bias" in block,
        "norm": "layernorm" if "in_norm.bias" in block else "rmsnorm",
        **_scale(block, "ls.gamma", "ls.gamma"),
    }


def _head(shapes: Shapes, mlp_dim: int) -> dict[str, Any]:
    width = shapes["patch_embed.proj.weight"][0]
    head = shapes.get("head.weight")
    hidden = shapes.get("pre_logits.weight")
    inputs = (hidden or head or (0, width))[1]
    fields: dict[str, Any] = {
        "num_classes": head[0] if head else 0,
        "head_hidden": hidden[0] if hidden else None,
        "final_norm": "none",
    }
    if head:
        fields["head_bias"] = "head.bias" in shapes
    if "norm.weight" in shapes:
        fields["final_norm"] = "pre_pool"
    elif "fc_norm.weight" in shapes:
        fields["final_norm"] = "post_pool"
    if "attn_pool.latent" in shapes:
        fields["pool"] = "map"
        hidden_dim = shapes.get("attn_pool.mlp.fc1.weight", (0,))[0]
        if hidden_dim != mlp_dim:  # if equal, a schema may state it or not
            fields["pool_mlp_dim"] = hidden_dim
    elif "pool.std_scale" in shapes:
        fields |= {"pool": "soft", "pool_standardise": True}
    elif inputs == 2 * width:
        fields["pool"] = "class_mean"
    elif "cls_token" not in shapes:
        fields["pool"] = "mean"
    return fields
