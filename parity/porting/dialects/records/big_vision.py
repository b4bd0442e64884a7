"""Google's Big Vision: ``.npz`` files of its ViT, AugReg2, SigLIP and so on, unrolled or scanned.

Positions are added before the class token is prepended, so that token has no row in the table. With
``scan`` each tensor of the encoder stacks all blocks. In a file of SigLIP the image tower is under
``params/img/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.google import (
    HEADS,
    LINEN,
    PATCH,
    PRE_LINEN,
    encoder,
    pooled_by_token,
)
from parity.porting.dialects.table import Table, dense, flax_norm, respell_names, row
from vit_config import Preprocess

MAP, KERNEL = "MAPHead_0", "i g e -> (g e) i"
ATTENTION = f"{MAP}/MultiHeadDotProductAttention_0"
KEY_VALUE = (f"{ATTENTION}/key", f"{ATTENTION}/value")
POOL: Table = (
    *row("attn_pool.latent", f"{MAP}/probe"),
    *row("attn_pool.q.weight", f"{ATTENTION}/query/kernel", KERNEL),
    *row("attn_pool.q.bias", f"{ATTENTION}/query/bias", "g e -> (g e)"),
    *row("attn_pool.kv.weight", tuple(f"{name}/kernel" for name in KEY_VALUE), KERNEL),
    *row("attn_pool.kv.bias", tuple(f"{name}/bias" for name in KEY_VALUE), "g e -> (g e)"),
    *row("attn_pool.proj.weight", f"{ATTENTION}/out/kernel", "g e o -> o (g e)"),
    *row("attn_pool.proj.bias", f"{ATTENTION}/out/bias"),
    *flax_norm("attn_pool.norm", f"{MAP}/LayerNorm_0"),
    *dense("attn_pool.mlp.fc1", f"{MAP}/MlpBlock_0/Dense_0"),
    *dense("attn_pool.mlp.fc2", f"{MAP}/MlpBlock_0/Dense_1"),
)
CODE = "big_vision/models/vit.py"
BLOCKS = "Transformer/encoderblock_{i}"


def _table(blocks: Table) -> Table:
    return (*PATCH, *row("pos_embed", "pos_embedding"), *blocks, *POOL, *HEADS)


TABLE = _table(encoder(BLOCKS, LINEN))
SCAN = _table(encoder("Transformer/encoderblock", LINEN, stack="L "))
# older names, as in its fix_old_checkpoints: positions inside the encoder, the pool's tensors at the top
POSITIONS = ("Transformer/posembed_input/pos_embedding", "Transformer/pos_embedding", "pos_embedding")
OLDER = tuple(
    respell_names(table, {**({"pos_embedding": place} if place != "pos_embedding" else {}), **inlined})
    for numbers in (LINEN, PRE_LINEN)
    for table in [_table(encoder(BLOCKS, numbers))]
    for place in POSITIONS
    for inlined in ({}, {f"{MAP}/": ""})
)


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    """Return sines and cosines as the positions if there is no position table."""
    return {} if "pos_embed" in fields else by_code(f"{CODE}: get_posemb", pos_embed="sincos2d_simple")


def _dialect(name: str, title: str, tables: tuple[Table, ...], block: str) -> Dialect:
    return Dialect(
        name=name,
        title=title,
        family="big-vision",
        tables=tables,
        marks=("embedding/kernel", "Transformer/encoder_norm/scale", f"{block}/LayerNorm_0/scale"),
        can={
            "act": ("gelu_tanh",),
            "class_token": ANY,
            "head_hidden": ANY,
            "pool": ("class", "mean", "map"),
            "pos_embed": ("learned", "sincos2d_simple"),
            "pos_embed_prefix": ("none",),
        },
        older={"pos_embed_prefix": ("auto",)},
        limits=pooled_by_token,
        fixed={
            **by_code(f"{CODE}: nn.gelu, which approximates", act="gelu_tanh"),
            **by_code("flax.linen.LayerNorm: epsilon = 1e-6", norm_eps=1e-6),
            **by_code(f"{CODE}: pool_type = tok has a class token", pool="class"),
            **by_code(f"{CODE}: resample_posemb", pos_embed_resize="bilinear_corners"),
        },
        follows=_follows,
        square=f"{CODE}: resample_posemb: int(np.sqrt(old.shape[1]))",
        # value_range(-1, 1) everywhere; resize(size) in the runs of SigLIP, classifiers vary
        preprocess=Preprocess(interpolation="bilinear", crop_mode="squash"),
        container="npz",
        weights_name="model.npz",
    )


MAXTEXT = {"MlpBlock_0": "MlpBlockViT_0"}
"""MaxText's name in its tower of Gemma 3, which is this one otherwise."""
DIALECTS = (
    _dialect(
        "big-vision",
        "Big Vision",
        (TABLE, *OLDER, respell_names(TABLE, MAXTEXT)),
        "Transformer/encoderblock_0",
    ),
    _dialect(
        "big-vision-scan",
        "Big Vision with scan",
        (SCAN, respell_names(SCAN, MAXTEXT)),
        "Transformer/encoderblock",
    ),
)
