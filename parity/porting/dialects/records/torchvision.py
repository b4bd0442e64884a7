"""torchvision's ``VisionTransformer``: b_16, b_32, l_16, l_32, h_14 and others that it builds."""

from __future__ import annotations

from collections.abc import Iterator

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.table import layer, respell_names, row
from vit_config import ViTConfig

BLOCK = "encoder.layers.encoder_layer_{i}"
TABLE = (
    *row("cls_token", "class_token"),
    *layer("patch_embed.proj", "conv_proj"),
    *row("pos_embed", "encoder.pos_embedding"),
    *layer("blocks.{i}.norm1", f"{BLOCK}.ln_1"),
    *row("blocks.{i}.attn.qkv.weight", f"{BLOCK}.self_attention.in_proj_weight"),
    *row("blocks.{i}.attn.qkv.bias", f"{BLOCK}.self_attention.in_proj_bias"),
    *layer("blocks.{i}.attn.proj", f"{BLOCK}.self_attention.out_proj"),
    *layer("blocks.{i}.norm2", f"{BLOCK}.ln_2"),
    *layer("blocks.{i}.mlp.fc1", f"{BLOCK}.mlp.0"),
    *layer("blocks.{i}.mlp.fc2", f"{BLOCK}.mlp.3"),
    *layer("norm", "encoder.ln"),
    *layer("pre_logits", "heads.pre_logits"),
    *layer("head", "heads.head"),
    *layer("head", "heads"),  # where one layer replaced all of `heads`
)
OLDER = respell_names(TABLE, {".mlp.0": ".mlp.linear_1", ".mlp.3": ".mlp.linear_2"})
CODE = "torchvision/models/vision_transformer.py"


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.image_size[0] != cfg.image_size[1] or cfg.patch_size[0] != cfg.patch_size[1]:
        yield f"its images and patches are square, not {cfg.image_size} and {cfg.patch_size}"
    if cfg.in_channels != 3:
        yield f"its images have 3 channels, not {cfg.in_channels}"


DIALECTS = (
    Dialect(
        name="torchvision",
        title="torchvision",
        family="torchvision",
        tables=(TABLE, OLDER),
        marks=("class_token", "encoder.pos_embedding", "encoder.ln.weight"),
        can={"head_hidden": ANY, "num_classes": lambda cfg: (cfg.num_classes or "a number",)},
        older={"num_classes": (0,)},  # where heads were removed or replaced
        ignored=("heads.*",),
        limits=_limits,
        fixed={
            **by_code(f"{CODE}: norm_layer = partial(nn.LayerNorm, eps=1e-6)", norm_eps=1e-6),
            **by_code(f"{CODE}: MLPBlock: nn.GELU", act="gelu"),
            **by_code(f"{CODE}: forward: x = x[:, 0]", pool="class"),
            **by_code(f"{CODE}: interpolate_embeddings", pos_embed_resize="bicubic"),
        },
        square=f"{CODE}: VisionTransformer(image_size: int)",
        foreign={"conv_proj.conv_bn_relu_*": "the variant with a stem of convolutions"},
        container="torch",
        weights_name="model.pth",
    ),
)
