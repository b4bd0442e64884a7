"""jimm's NNX tree of SigLIP's image tower, up to the versions that keep each block by itself.

Its ViT and CLIP have one epsilon in the blocks and another in the norms around them, and its later
versions, which stack the blocks, one GELU in the blocks and another in the pooling head: both are
refused by name (`parity.porting.recognition.strangers`).
"""

from __future__ import annotations

from parity.porting.dialects.dialect import Dialect, by_code
from parity.porting.dialects.records.big_vision import POOL
from parity.porting.dialects.records.hf.siglip import no_head
from parity.porting.dialects.table import dense, flax_attention, flax_norm, respell_names, row

CODE = "jimm/common/vit.py"
BLOCK = "transformer/blocks/layers/{i}"
TABLE = (
    *row("patch_embed.proj.weight", "patch_embeddings/kernel", "p q c o -> o c p q"),
    *row("patch_embed.proj.bias", "patch_embeddings/bias"),
    *row("pos_embed", "position_embeddings"),
    *flax_norm("blocks.{i}.norm1", f"{BLOCK}/norm1"),
    *flax_attention("blocks.{i}.attn", f"{BLOCK}/attn"),
    *flax_norm("blocks.{i}.norm2", f"{BLOCK}/norm2"),
    *dense("blocks.{i}.mlp.fc1", f"{BLOCK}/mlp/layers/0"),
    *dense("blocks.{i}.mlp.fc2", f"{BLOCK}/mlp/layers/3"),
    *flax_norm("norm", "ln_post"),
    *respell_names(
        POOL,
        {
            "MAPHead_0/MultiHeadDotProductAttention_0": "MAPHead/attn",
            "MAPHead_0/LayerNorm_0": "MAPHead/layernorm",
            "MAPHead_0/MlpBlock_0/Dense_0": "MAPHead/mlp/layers/0",
            "MAPHead_0/MlpBlock_0/Dense_1": "MAPHead/mlp/layers/2",
            "MAPHead_0": "MAPHead",
        },
    ),
)

DIALECTS = (
    Dialect(
        name="jimm-siglip",
        title="jimm's SigLIP",
        family="jimm",
        tables=(TABLE,),
        marks=("patch_embeddings/kernel", "transformer/blocks/layers/0/norm1/scale", "MAPHead/probe"),
        can={"act": ("gelu_tanh",), "class_token": (False,), "pool": ("map",)},
        limits=no_head,
        fixed={
            **by_code("jimm/common/transformer.py: nnx.gelu, which approximates", act="gelu_tanh"),
            **by_code("jimm/models/siglip.py: layernorm_epsilon = 1e-6", norm_eps=1e-6),
        },
        square=f"{CODE}: n_patches = (img_size // patch_size) ** 2",
        ignored=("*/rngs/*",),
        container="npz",
        weights_name="model.npz",
    ),
)
