"""KerasHub's SigLIP and SigLIP 2, by transformers' table: the image tower, also beside the text tower,
which is left out."""

from __future__ import annotations

import numpy as np

from parity.porting.dialects.dialect import by_code
from parity.porting.dialects.records.hf import siglip
from parity.porting.dialects.records.hf.keys import Key
from parity.porting.dialects.records.keras_hub.parts import (
    SIZES,
    SQUARE_PATCH,
    KerasSettings,
    activation,
    keras_dialect,
    keras_table,
)
from parity.porting.dialects.table import row

EMBEDDING, FIRST = "layers/sig_lip_vision_embedding", "layers/sig_lip_encoder_layer"
POOL = "layers/sig_lip_multi_head_attention_pooling"
NAMES = {
    "encoder.layers.{i}": f"{FIRST}_{{i}}", "embeddings.": f"{EMBEDDING}/",
    "post_layernorm": "layers/layer_normalization", "q_proj": "query_dense", "k_proj": "key_dense",
    "v_proj": "value_dense", "out_proj": "output_dense", "head.probe": f"{POOL}/vars/0",
    "head.layernorm": f"{POOL}/layer_norm", "head.": f"{POOL}/",
}  # fmt: skip
"""Keras' names for parts of transformers'."""
Q, K, V, OUT = (f"{POOL}/attention/{name}_dense/vars/" for name in ("query", "key", "value", "output"))
TABLE = (
    *keras_table((*siglip.ENCODER, *(e for e in siglip.POOL if "attention" not in e.theirs[0])), NAMES),
    *row("attn_pool.q.weight", f"{Q}0", "i g e -> (g e) i"),
    *row("attn_pool.q.bias", f"{Q}1", "g e -> (g e)"),
    *row("attn_pool.kv.weight", (f"{K}0", f"{V}0"), "i g e -> (g e) i"),
    *row("attn_pool.kv.bias", (f"{K}1", f"{V}1"), "g e -> (g e)"),
    *row("attn_pool.proj.weight", f"{OUT}0", "g e o -> o (g e)"),
    *row("attn_pool.proj.bias", f"{OUT}1"),
)

DIALECTS = (
    keras_dialect(
        "siglip",
        "SigLIP",
        tables=(TABLE,),
        marks=(f"{EMBEDDING}/patch_embedding/vars/0", f"{POOL}/vars/0"),
        can={
            "act": ("gelu_tanh", "gelu", "silu", "relu"), "class_token": (False,), "pool": ("map",),
            "norm_eps": (1e-6,),
        },
        limits=siglip.no_head,
        asks=("norm_eps",),  # that of the blocks may be another than this one of the last norm
        square="SigLIPVisionEncoder: height != width",
        fixed=by_code("SigLIPVisionEmbedding: nothing resizes a table", pos_embed_resize="bicubic"),
        settings=KerasSettings(
            "siglip.siglip_vision_encoder",
            "SigLIPVisionEncoder",
            keys=(
                *SIZES,
                SQUARE_PATCH,
                Key("intermediate_dim", "mlp_dim", None),
                Key("layer_norm_epsilon", "norm_eps", 1e-6, float),
                activation("intermediate_activation", "gelu_approximate", gelu_approximate="gelu_tanh"),
            ),
            hosts={"SigLIPBackbone": "vision_encoder"},
        ),
        buffers={f"{EMBEDDING}/vars/0": lambda cfg: np.arange(cfg.num_patches, dtype=np.int32)[None]},
    ),
)  # fmt: skip
