"""EVA-02's image towers by the names of EVA-CLIP's own code, which timm renames when it loads them.

The files also hold the cosines and sines of the rotary positions, once for the model and once for each
block. Only these show the grid of pretraining, to which the positions are scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import ANY, Dialect, Fixed, by_code
from parity.porting.dialects.table import REST, layer, row
from vit_config import Rope, ViTConfig

BLOCK, CODE = "blocks.{i}", "eva_clip/eva_vit_model.py"
APART = tuple(f"{BLOCK}.attn.{name}_proj.weight" for name in "qkv")
TABLE = (
    *row(f"{BLOCK}.attn.qkv.weight", APART),
    *layer(f"{BLOCK}.attn.norm", f"{BLOCK}.attn.inner_attn_ln"),
    *layer(f"{BLOCK}.mlp.fc1_g", f"{BLOCK}.mlp.w1"),
    *layer(f"{BLOCK}.mlp.fc1_x", f"{BLOCK}.mlp.w2"),
    *layer(f"{BLOCK}.mlp.norm", f"{BLOCK}.mlp.ffn_ln"),
    *layer(f"{BLOCK}.mlp.fc2", f"{BLOCK}.mlp.w3"),
    *row(f"{BLOCK}.ls1.gamma", f"{BLOCK}.gamma_1"),
    *row(f"{BLOCK}.ls2.gamma", f"{BLOCK}.gamma_2"),
    REST,
)
ROTARY = ("rope", f"{BLOCK}.attn.rope")


def _angles(cfg: ViTConfig) -> np.ndarray | None:
    """Compute the rotation angles of a head's values, (patches, d): the row turns the first half."""
    if cfg.rope is None:
        return None
    side, half = cfg.grid[0], cfg.head_dim // 2
    pretrained = (cfg.rope.reference_grid or cfg.grid)[0]
    frequencies = cfg.rope.theta ** -(np.arange(0, half, 2) / half)
    places = np.arange(side) / side * pretrained
    turns = np.repeat(np.outer(places, frequencies), 2, axis=1)  # (side, d / 2)
    rows, columns = np.repeat(turns, side, axis=0), np.tile(turns, (side, 1))
    return np.concatenate([rows, columns], axis=1)


def _table_of(turn: Callable[[np.ndarray], np.ndarray]) -> Callable[[ViTConfig], np.ndarray | None]:
    return lambda cfg: None if (angles := _angles(cfg)) is None else turn(angles)


def _limits(cfg: ViTConfig) -> Iterator[str]:
    grids = (cfg.grid, (cfg.rope and cfg.rope.reference_grid) or (1, 1))
    if any(height != width for height, width in grids):
        yield f"its images and the grid of its rotary positions are square, not {grids[0]}"


def _follows(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    act = "gelu" if fields.get("mlp") == "mlp" else "silu"
    return by_code(f"{CODE}: SwiGLU: nn.SiLU; Mlp: nn.GELU", act=act)


def _ropes(cfg: ViTConfig) -> tuple[Rope | None, ...]:
    return (None, Rope(reference_grid=cfg.rope.reference_grid if cfg.rope else None))


DIALECTS = (
    Dialect(
        name="eva-clip",
        title="EVA-CLIP's EVA-02",
        family="eva-clip",
        tables=(TABLE,),
        marks=(
            "patch_embed.proj.weight",
            "blocks.0.attn.q_proj.weight",
            "blocks.0.attn.inner_attn_ln.weight|blocks.0.mlp.w1.weight",
            "!mask_token",
        ),
        can={
            "rope": _ropes,
            "block": ("pre_norm", "res_post"),
            "qkv_bias": ANY,
            "k_bias": lambda cfg: (False,) if cfg.qkv_bias else (True, False),
            "attention_norm": (True,),
            "mlp": ("mlp", "swiglu"),
            "mlp_norm": (True,),
            "act": lambda cfg: ("gelu",) if cfg.mlp == "mlp" else ("silu",),
            "layer_scale": ANY,
            "layer_scale_on": ("both",),
        },
        limits=_limits,
        fixed={
            **by_code("eva_clip/model.py: partial(norm_layer, eps = 1e-6)", norm_eps=1e-6),
            **by_code(f"{CODE}: forward_features: x[:, 0] without fc_norm", pool="class"),
        },
        follows=_follows,
        square=f"{CODE}: hw_seq_len = img_size // patch_size",
        buffers={
            f"{where}.freqs_{name}": _table_of(turn)
            for where in ROTARY
            for name, turn in (("cos", np.cos), ("sin", np.sin))
        },
        ignored=("rope.freqs_*", "blocks.*.attn.rope.freqs_*"),
        container="torch",
        weights_name="model.pt",
    ),
)
