"""jax-ml/bonsai: the NNX trees of its ViT and of its DINOv3, as Orbax or a flat archive saves them.

Bonsai reads Hugging Face's files and keeps no config; its code takes the approximate GELU where those
models were trained with the exact one.
"""

from __future__ import annotations

from dataclasses import replace

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf import dinov3
from parity.porting.dialects.records.hf_flax import flax
from parity.porting.dialects.table import dense, flax_attention, flax_norm, row

CODE = "bonsai/models/vit/modeling.py"
BLOCK, EMBEDDINGS = "layers/{i}", "pos_embeddings"
TABLE = (
    *row("patch_embed.proj.weight", f"{EMBEDDINGS}/projection/kernel", "p q c o -> o c p q"),
    *row("patch_embed.proj.bias", f"{EMBEDDINGS}/projection/bias"),
    *row("cls_token", f"{EMBEDDINGS}/cls_token"),
    *row("pos_embed", f"{EMBEDDINGS}/pos_embeddings"),
    *flax_norm("blocks.{i}.norm1", f"{BLOCK}/layernorm_before"),
    *flax_attention("blocks.{i}.attn", f"{BLOCK}/attention"),
    *flax_norm("blocks.{i}.norm2", f"{BLOCK}/layernorm_after"),
    *dense("blocks.{i}.mlp.fc1", f"{BLOCK}/linear1"),
    *dense("blocks.{i}.mlp.fc2", f"{BLOCK}/linear2"),
    *flax_norm("norm", "ln"),
    *dense("head", "classifier"),
)

DIALECTS = (
    Dialect(
        name="bonsai-vit",
        title="bonsai's ViT",
        family="bonsai",
        tables=(TABLE,),
        marks=(f"{EMBEDDINGS}/projection/kernel", "layers/0/layernorm_before/scale", "ln/scale"),
        can={"act": ("gelu_tanh",), "norm_eps": ANY},
        fixed={
            **by_code(f"{CODE}: jax.nn.gelu, which approximates", act="gelu_tanh"),
            **by_code(f"{CODE}: self.classifier(x[:, 0, :])", pool="class"),
        },
        square=f"{CODE}: interpolate_posembed: int(jnp.sqrt(len(posemb_grid)))",
        container="npz",
        weights_name="model.npz",
    ),
    replace(
        flax(dinov3.DIALECTS[0], dinov3.PLAIN, dinov3.GATED),
        name="bonsai-dinov3",
        title="bonsai's DINOv3",
        family="bonsai",
        can={
            **dinov3.DIALECTS[0].can,
            "act": ("gelu_tanh", "silu"),
            "mlp_bias": lambda cfg: (True,) if cfg.mlp == "mlp" else (True, False),
        },
        settings=None,
        container="npz",
        weights_name="model.npz",
        note="its library turns queries and keys in bfloat16",
    ),
)
