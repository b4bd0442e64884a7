"""Perception Encoder by its authors' names (arXiv 2504.13181): CLIP's, with SigLIP's pool behind them.

Core models pool by attention and project; spatial and language models end with the tokens of the last
block. All turn queries and keys by whole rows and columns, from 1 where there is a class token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.records.clip import BARE
from parity.porting.dialects.records.hf.clip import square
from parity.porting.dialects.records.hf.siglip import POOL, TOKENS_ALONE
from parity.porting.dialects.table import respell_names
from vit_config import Preprocess, Rope, ViTConfig

CODE = "core/vision_encoder/pe.py"
NAMES = {"head.": "attn_pool.", "attention": "attn", "fc1": "c_fc", "fc2": "c_proj"}
MARKS = ("conv1.weight", "ln_pre.weight", "transformer.resblocks.0.ln_1.weight")


def _rope(class_token: bool) -> Rope:
    return Rope(axes="wh", offset=float(class_token))


def _ropes(cfg: ViTConfig) -> tuple[Rope, ...]:
    own = _rope(cfg.class_token)
    return own, own.replace(reference_grid=cfg.grid)  # the same for images of that grid


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    token = fields["class_token"]
    seen = token and fields.get("pool") == "map"
    return by_code(f"{CODE}: Rope2D; attn_pool(x)", rope=_rope(token), pool_prefix=seen)


def _limits(cfg: ViTConfig) -> Iterator[str]:
    yield from square(cfg)
    if cfg.in_channels != 3:
        yield f"its images have 3 channels, not {cfg.in_channels}"
    if cfg.pool == "map" and (cfg.pool_mlp_dim or cfg.mlp_dim) != 4 * cfg.hidden_size:
        yield "the MLP of its pool is 4 times as wide as a token, whatever that of the blocks"


def _dialect(name: str, title: str, can: Mapping[str, Any], **own: Any) -> Dialect:
    shared = {
        "patch_bias": (False,), "pre_norm": (True,), "norm_eps": (1e-5,), "class_token": ANY,
        "layer_scale": ANY, "layer_scale_on": ("both",), "rope": _ropes,
    }  # fmt: skip
    return Dialect(
        name=f"perception-{name}",
        title=title,
        family="perception",
        can={**shared, **can},
        limits=_limits,
        fixed={
            **by_code(f"{CODE}: act_layer = nn.GELU; LayerNorm, eps = 1e-5", act="gelu", norm_eps=1e-5),
            **by_code(
                f"{CODE}: _sample_abs_posemb", pos_embed_resize="bilinear", dynamic_image_size=True
            ),
        },
        follows=_follows,
        square=f"{CODE}: posemb_grid_size**2",
        # core/vision_encoder/transforms.py: get_image_transform
        preprocess=Preprocess(interpolation="bilinear", crop_mode="squash"),
        container="torch",
        weights_name="model.pt",
        **own,
    )


DIALECTS = (
    _dialect(
        "core",
        "Perception Encoder",
        {
            "pool": ("map",), "pool_num_heads": ANY, "pool_mlp_dim": ANY,
            "pool_prefix": lambda cfg: (cfg.class_token,),
            "head_bias": lambda cfg: (False,) if cfg.num_classes else (True,),
        },
        tables=((*BARE, *respell_names(POOL, NAMES)),),
        marks=(*MARKS, "attn_pool.probe"),
    ),
    _dialect(
        "tokens",
        "Perception Encoder without a pool",
        {"pool": ("mean",), "final_norm": ("none",)},
        tables=(BARE,),
        marks=(*MARKS, "!attn_pool.probe", "!ln_post.weight", "!proj"),
        note=TOKENS_ALONE,
    ),
)  # fmt: skip
