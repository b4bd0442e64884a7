"""transformers' VideoMAE for one frame: its patches of one frame each are a convolution of an image.

A model that sees several frames, or tubes of several, is one of videos and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf.config import HfSettings
from parity.porting.dialects.records.hf.keys import ACTS, DROPOUT, MLP, Key, sizes
from parity.porting.dialects.records.hf.vit import BLOCK, BLOCKS
from parity.porting.dialects.table import layer, respell_names, row
from vit_config import ViTConfig

EPS = 1e-5
"""Epsilon of the norm before the classifier, which its code does not read from config.json."""
PROJECTION = "embeddings.patch_embeddings.projection"
Q, V = (f"{BLOCK}.attention.attention.{name}_bias" for name in "qv")
TABLE = (
    *row("patch_embed.proj.weight", f"{PROJECTION}.weight", "D C 1 p q -> D C p q"),
    *row("patch_embed.proj.bias", f"{PROJECTION}.bias"),
    *row("blocks.{i}.attn.q_bias", Q),
    *row("blocks.{i}.attn.v_bias", V),
    *BLOCKS,
    *layer("norm", "layernorm"),
    *layer("fc_norm", "fc_norm"),
    *layer("head", "classifier"),
)
MEMORY = respell_names(TABLE, {"q_bias": "query.bias", "v_bias": "value.bias"})


def _derive(entries: Mapping[str, Any]) -> dict[str, Any]:
    frames, tube = entries.get("num_frames", 16), entries.get("tubelet_size", 2)
    if (frames, tube) != (1, 1):
        raise ValueError(
            f"num_frames = {frames}, tubelet_size = {tube}: it is a model of videos; one of a single"
            " frame is read"
        )
    return {}


def _entries(cfg: ViTConfig) -> dict[str, Any]:
    return {"num_frames": 1, "tubelet_size": 1, "use_mean_pooling": cfg.final_norm != "pre_pool"}


def _limits(cfg: ViTConfig) -> Iterator[str]:
    if bool(cfg.num_classes) != (cfg.final_norm == "post_pool"):
        yield f"its classifier follows a norm of the mean, and only there is one ({cfg.final_norm})"
    if cfg.num_classes and cfg.norm_eps != EPS:
        yield f"the norm before its classifier has norm_eps = {EPS}, not {cfg.norm_eps}"


def _architecture(cfg: ViTConfig) -> str:
    return "VideoMAEForVideoClassification" if cfg.num_classes else "VideoMAEModel"


DIALECTS = (
    Dialect(
        name="hf-videomae-frame",
        title="transformers' VideoMAE of one frame",
        family="hf",
        tables=(TABLE, MEMORY),
        marks=(f"{PROJECTION}.weight:5", "encoder.layer.0.layernorm_before.weight"),
        can={
            "act": tuple(ACTS.values()),
            "norm_eps": ANY,
            "qkv_bias": ANY,
            "k_bias": lambda cfg: (False,) if cfg.qkv_bias else (True, False),
            "class_token": (False,),
            "pos_embed": ("sincos1d",),
            "pool": ("mean",),
            "final_norm": ("pre_pool", "post_pool", "none"),
        },
        limits=_limits,
        fixed={
            **by_code("VideoMAEEmbeddings: get_sinusoid_encoding_table", pos_embed="sincos1d"),
            **by_code("VideoMAEForVideoClassification: sequence_output.mean(1)", pool="mean"),
        },
        settings=HfSettings(
            model_types={"videomae": ""},
            keys=(*sizes(norm_eps=1e-12), *MLP, *DROPOUT, Key("qv_bias", "qkv_bias", True)),
            architecture=_architecture,
            derive=_derive,
            entries=_entries,
            processor="VideoMAEImageProcessor",
        ),
        body="videomae.",
        beside=("classifier.", "fc_norm."),
        ignored=("decoder.*", "encoder_to_decoder.*", "mask_token", "position_embeddings"),
    ),
)
