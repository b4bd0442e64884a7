"""Facebook's own checkpoints of DINOv2 and DINOv3: backbones, with a linear classifier or without.

DINOv2's position table has a row for the class token and none for registers. DINOv3 uses rotary
positions instead; if its keys have no bias, the bias of queries, keys and values is masked there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.table import Table, layer, only_when, respell_names, row
from vit_config import Preprocess, ViTConfig, WeightsError
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD
from vit_config.rope import Rope

PERIODS, MASKED = "rope_embed.periods", "blocks.{i}.attn.qkv.bias_mask"
BIAS = "blocks.{i}.attn.qkv.bias"


def _table(registers: str, qkv_bias: Table, gated: Table) -> Table:
    same = ("patch_embed.proj", "blocks.{i}.norm1", "blocks.{i}.attn.proj", "blocks.{i}.norm2", "norm")
    rows = ("attn.qkv.weight", "ls1.gamma", "ls2.gamma")
    plain = (f"blocks.{{i}}.mlp.{name}" for name in ("fc1", "fc2"))
    return (
        *(each for name in same for each in layer(name, name)),
        *row("cls_token", "cls_token"),
        *row("pos_embed", "pos_embed"),
        *(each for name in rows for each in row(f"blocks.{{i}}.{name}", f"blocks.{{i}}.{name}")),
        *row("reg_token", registers),
        *qkv_bias,
        *only_when("mlp", "mlp", tuple(each for name in plain for each in layer(name, name))),
        *gated,
        *layer("head", "linear_head"),
    )


PACKED = (
    *layer("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.w12"),
    *layer("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.w3"),
)
SPLIT = (
    *layer("blocks.{i}.mlp.fc1_g", "blocks.{i}.mlp.w1"),
    *layer("blocks.{i}.mlp.fc1_x", "blocks.{i}.mlp.w2"),
    *layer("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.w3"),
)
WITHOUT_KEYS = row(("blocks.{i}.attn.q_bias", None, "blocks.{i}.attn.v_bias"), BIAS)
V2 = _table("register_tokens", row(BIAS, BIAS), PACKED)
CHUNKED = respell_names(V2, {"blocks.{i}": "blocks.{j}.{i}"})  # block numbers run on across chunks
TRAINING = ("mask_token", "dino_head.*", "ibot_head.*")
V2_CODE, V3_CODE = "dinov2/models/vision_transformer.py", "dinov3/models/vision_transformer.py"


def dino_rope(theta: float) -> Rope:
    """Return the rotary positions of DINOv3."""
    return Rope(kind="centered", theta=theta, pairs="half")


def periods(cfg: ViTConfig) -> np.ndarray | None:
    """Compute the rotary periods of one axis, (d / 4,); None without rotary positions."""
    if cfg.rope is None:
        return None
    quarter = cfg.head_dim // 4
    return cfg.rope.theta ** (np.arange(quarter) / quarter)


def _bias_mask(cfg: ViTConfig) -> np.ndarray:
    return np.repeat([1.0, 0.0, 1.0], cfg.attention_width)


def _mask_token(cfg: ViTConfig) -> np.ndarray:
    return np.zeros((1, cfg.hidden_size))


def _follows_v2(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    resize = "bicubic_antialias" if fields["register_tokens"] else "dinov2"
    where = "dinov2/hub/backbones.py: interpolate_antialias, interpolate_offset"
    return {**_follows(fields), **by_code(where, pos_embed_resize=resize)}


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    act = "gelu" if fields["mlp"] == "mlp" else "silu"
    return by_code("layers/mlp.py: act_layer = nn.GELU; layers/swiglu_ffn.py: F.silu", act=act)


def _heads(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return num_heads from the number of rotary periods: each rotates one pair of values per axis."""
    periods, width = (math.prod(shapes.get(name, (0,))[-1:]) for name in (PERIODS, "cls_token"))
    if not periods or width % (4 * periods):
        raise WeightsError(f"{PERIODS}: {periods} periods, which does not fit heads of {width} values")
    return {"num_heads": width // (4 * periods)}


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if cfg.layer_scale_on != "both":
        yield f"it scales both branches (layer_scale_on = {cfg.layer_scale_on})"
    if cfg.pos_embed == "learned" and cfg.grid[0] != cfg.grid[1]:
        yield f"it takes a position table for a square, not for a grid of {cfg.grid}"
    if cfg.mlp != "mlp" and cfg.mlp_dim % 8:
        yield f"its gated MLP has a multiple of 8 as its width, not mlp_dim = {cfg.mlp_dim}"


def _dialect(name: str, title: str, *, can: Mapping[str, Any], **own: Any) -> Dialect:
    shared = {
        "attention_out_bias": ANY,
        "mlp_bias": ANY,
        "layer_scale": ANY,
        "register_tokens": ANY,
        "act": lambda cfg: ("gelu",) if cfg.mlp == "mlp" else ("silu",),
        "pool": lambda cfg: ("class_mean",) if cfg.num_classes else ("class",),
    }
    code = own.pop("code")
    pooled = by_code(f"{code}: forward: x_norm_clstoken", pool="class", dynamic_image_size=True)
    own["fixed"] = {**pooled, **own["fixed"]}
    own["buffers"] = {"mask_token": _mask_token, **own.get("buffers", {})}
    return Dialect(
        name=name,
        title=title,
        can={**shared, **can},
        limits=_limits,
        body="backbone.",
        beside=("linear_head.",),
        container="torch",
        weights_name="model.pth",
        **own,
    )


def _v3(name: str, qkv_bias: Table, *, mark: str, can: Mapping[str, Any], buffers=()) -> Dialect:
    return _dialect(
        name,
        "DINOv3",
        family="dinov3",
        tables=(_table("storage_tokens", qkv_bias, SPLIT),),
        marks=("patch_embed.proj.weight", PERIODS, mark),
        can={
            "norm_eps": (1e-5,),
            "mlp": ("mlp", "swiglu"),
            "pos_embed": ("none",),
            "rope": lambda cfg: (dino_rope(cfg.rope.theta if cfg.rope else 100.0),),
            **can,
        },
        older={"norm_eps": (1e-6,)},  # where the training's config asks for `layernorm`
        code=V3_CODE,
        fixed={
            **by_code("dinov3/hub/backbones.py: norm_layer = layernormbf16", norm_eps=1e-5),
            **by_code(
                f"{V3_CODE}: no position table; rope_embed", pos_embed="none", rope=dino_rope(100.0)
            ),
            # positions are relative to the image's own size
            **by_code(f"{V3_CODE}: img_size = 224, which nothing depends on", image_size=224),
        },
        follows=_follows,
        stated=_heads,
        buffers={PERIODS: periods, **dict(buffers)},
        ignored=(*TRAINING, "local_cls_norm.*", "projectors.*"),
        foreign={"cls_norm.*": "a model that has another norm for patches than for the class token"},
    )


DIALECTS = (
    _v3(
        "dinov3-masked",
        WITHOUT_KEYS,
        mark=MASKED.replace("{i}", "0"),
        can={"k_bias": (False,)},
        buffers={MASKED: _bias_mask},
    ),
    _v3(
        "dinov3-unmasked", row(BIAS, BIAS), mark="!" + MASKED.replace("{i}", "0"), can={"qkv_bias": ANY}
    ),
    _dialect(
        "dinov2",
        "DINOv2",
        family="dinov2",
        tables=(V2, CHUNKED),
        marks=(
            "patch_embed.proj.weight",
            "pos_embed",
            "mask_token:2|register_tokens|blocks.0.mlp.w12.weight",
        ),
        can={
            "qkv_bias": ANY,
            "mlp": ("mlp", "swiglu_packed"),
            "pos_embed_prefix": lambda cfg: ("class",) if cfg.register_tokens else ("auto",),
        },
        code=V2_CODE,
        fixed=by_code(f"{V2_CODE}: norm_layer = partial(nn.LayerNorm, eps=1e-6)", norm_eps=1e-6),
        follows=_follows_v2,
        square=f"{V2_CODE}: interpolate_pos_encoding: assert N == M * M",
        # its make_classification_eval_transform
        preprocess=Preprocess(
            mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_fraction=224 / 256, image_size=(224, 224)
        ),
        ignored=TRAINING,
    ),
)
