"""The JAX twin as Flax saves it: the state of its modules, by Orbax or in an archive of arrays.

``ocp.StandardCheckpointer().save(path, nnx.state(model))`` keeps the twin's own tree and states nothing
of the schema. The table is built from the parameters of example schemas: levels of a name are joined by
``/``, and the kind of layer determines the names and layouts of its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.table import Row, Table
from vit_config import Rope, ViTConfig
from vit_config.parameters import parameters

SMALL = ViTConfig(image_size=(4, 4), patch_size=(2, 2), hidden_size=8, depth=1, num_heads=2, mlp_dim=8)
EVERYTHING = SMALL.replace(
    distill_token=True, register_tokens=1, pre_norm=True, patch_norm=True, layer_scale=1.0,
    qk_norm=True, attention_norm=True, mlp_norm=True, rope=Rope(kind="mixed"),
)  # fmt: skip
SCHEMAS = (
    EVERYTHING,
    EVERYTHING.replace(num_parallel=2),
    SMALL.replace(block="parallel", qk_norm=True, layer_scale=1.0),
    SMALL.replace(block="parallel", qkv_bias=False, attention="differential"),
    SMALL.replace(attention="differential", qk_norm=True),
    SMALL.replace(k_bias=False),
    SMALL.replace(num_parallel=2, attention="differential", qk_norm=True),
    SMALL.replace(num_parallel=2, k_bias=False, mlp="swiglu"),
    SMALL.replace(attention="per_head", mlp="swiglu", final_norm="post_pool"),
    SMALL.replace(num_parallel=2, attention="per_head"),
    SMALL.replace(patch_embed="linear_hwc", patch_input_norm=True, pool="map", mlp="swiglu"),
    SMALL.replace(rel_pos_bias=True, pos_embed="none", pool="map", mlp_norm=True, head_hidden=4),
    SMALL.replace(rel_pos_bias=True, pos_embed="none", num_parallel=2),
    SMALL.replace(block="sandwich", linear_bounds=True, mlp="swiglu"),
    SMALL.replace(num_parallel=2, linear_bounds=True, mlp="swiglu"),
    SMALL.replace(num_parallel=2, linear_bounds=True),
    SMALL.replace(
        linear_bounds=True,
        pos_embed="factorized",
        pos_embed_grid=(2, 2),
        class_token=False,
        pool="soft",
        pool_window=2,
        pool_standardise=True,
        num_classes=0,
    ),
)
"""Example schemas that together have every possible parameter."""

LEAVES = {
    "linear": ("kernel", "i o -> o i"),
    "conv": ("kernel", "p q c o -> o c p q"),
    "norm": ("scale", ""),
}
"""Flax's name and layout of a weight, by kind of layer."""


def _table() -> Table:
    names: dict[tuple[str, str], None] = {}
    for cfg in SCHEMAS:
        for name, each in parameters(cfg).items():
            numbered = re.sub(r"\b(attns|ffns)\.\d+", r"\1.{j}", name.replace("blocks.0", "blocks.{i}"))
            names[numbered, each.kind] = None
    return tuple(_row(name, kind) for name, kind in sorted(names))


def _row(name: str, kind: str) -> Row:
    *path, leaf = name.split(".")
    layout = ""
    if leaf == "weight":
        leaf, layout = LEAVES[kind]
    axes = len(layout.partition(" -> ")[0].split()) or None
    return Row((name,), ("/".join((*path, leaf)),), layout, axes=axes)


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    if "layer_scale_on" in fields or fields.get("num_parallel", 1) > 1:
        return by_code("vit_jax/block.py: only a pre-norm block has ls1 or branches", block="pre_norm")
    return {}


DIALECTS = (
    Dialect(
        name="parity-nnx",
        title="the JAX twin, saved by Flax",
        family="parity-nnx",
        tables=(_table(),),
        marks=(
            "patch_embed/proj/kernel",
            "blocks/0/norm1/scale|blocks/0/in_norm/scale|blocks/0/attns/0/norm/scale",
        ),
        can=dict.fromkeys(ViTConfig.fields(), ANY),  # so that fields that no shape shows are asked for
        follows=_follows,
        unshown=("pool", "final_norm"),
        container="msgpack",
        weights_name="model.msgpack",
        writes=False,
    ),
)
