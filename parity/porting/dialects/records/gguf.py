"""llama.cpp's vision towers in GGUF (mmproj): plain CLIP and SigLIP, named by its converters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from parity.porting.dialects.dialect import ANY, Dialect, by_code
from parity.porting.dialects.records.hf import clip, siglip
from parity.porting.dialects.records.hf.keys import Key
from parity.porting.dialects.table import Table, layer, respell_names
from parity.porting.formats.gguf import KIND
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, ViTConfig

CODE = "llama.cpp: tools/mtmd/clip.cpp"
NAMES = {
    "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.position_embedding": "v.position_embd",
    "embeddings.class_embedding": "v.class_embd",
    "pre_layrnorm": "v.pre_ln",
    "post_layernorm": "v.post_ln",
    "encoder.layers.": "v.blk.",
    "self_attn.out_proj": "attn_out",
    **{f"self_attn.{each}_proj": f"attn_{each}" for each in "qkv"},
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
PROJECTORS = (
    "mlp",
    "mlp_norm",
    "ldp",
    "ldpv2",
    "adapter",
    "gemma3",
    "idefics3",
    "lfm2",
    "janus_pro",
    "phi4",
)
"""Kinds of model whose tower is the plain one; others turn queries by angles, or look at windows."""
VISION = "clip.vision"
HEADER = f"its {KIND} header"
Entry = partial(Key, file=HEADER)
ENTRIES = (
    Entry(f"{VISION}.image_size", "image_size", None, lambda side: (int(side),) * 2),
    Entry(f"{VISION}.patch_size", "patch_size", None, lambda side: (int(side),) * 2),
    Entry(f"{VISION}.embedding_length", "hidden_size", None),
    Entry(f"{VISION}.block_count", "depth", None),
    Entry(f"{VISION}.attention.head_count", "num_heads", None),
    Entry(f"{VISION}.attention.layer_norm_epsilon", "norm_eps", None, float),
)


class GgufSettings:
    """The entries of the file's own header."""

    file = HEADER

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether the entries tell of a vision tower."""
        return f"{VISION}.block_count" in sidecars[KIND]

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the entries state. ConfigError: it is no plain tower."""
        metadata, fields = sidecars[KIND], {"num_classes": 0}
        kind = metadata.get(f"{VISION}.projector_type", PROJECTORS[0])
        kind = metadata.get("clip.projector_type", kind)
        if kind not in PROJECTORS:
            raise ConfigError(
                f"{HEADER}: projector_type = {kind}, whose tower is no plain CLIP or SigLIP;"
                f" those of {', '.join(PROJECTORS)} are"
            )
        for entry in ENTRIES:
            fields |= entry.into_fields(metadata)
        gelu, silu = (metadata.get(f"clip.use_{each}", False) for each in ("gelu", "silu"))
        return {**fields, "act": "gelu_tanh" if gelu else "silu" if silu else "quick_gelu"}

    def notes(self, sidecars: Mapping[str, Any], section: str) -> list[str]:
        """Return a note on the activation."""
        note = "its library computes every GELU by tanh; --override act=gelu for a model that was"
        return [f"{note} trained with the exact one"] * bool(sidecars[KIND].get("clip.use_gelu"))

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return nothing: the header has a mean and a deviation, but not how images are resized."""
        return Metadata()

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return nothing: such files are not written."""
        return {}


def _dialect(name: str, title: str, table: Table, pool: str, **own: Any) -> Dialect:
    return Dialect(
        name=name,
        title=f"llama.cpp's {title}",
        family="gguf",
        tables=(respell_names(table, NAMES),),
        fixed=by_code(f"{CODE}: the tower returns tokens alone", pool=pool),
        settings=GgufSettings(),
        ignored=("mm.*", "a.*", "t.*", "adapter.*", "model.*", "v.boi", "v.eoi", "v.image_newline"),
        writes=False,
        note=f"its library pools nothing; pool = {pool} is the schema's, and changes no token",
        **own,
    )


CAN = {"norm_eps": ANY, "act": ("gelu_tanh", "silu", "quick_gelu"), "final_norm": ("pre_pool", "none")}
BLOCKS = ("v.patch_embd.weight:4", "v.position_embd.weight", "v.blk.0.attn_q.weight")
DIALECTS = (
    _dialect(
        "gguf-clip", "CLIP", (*clip.ENCODER, *layer("norm", clip.NORM)), "class",
        marks=(*BLOCKS, "v.class_embd", "v.pre_ln.weight"),
        can={**CAN, "pre_norm": (True,), "patch_bias": ANY},
    ),
    _dialect(
        "gguf-siglip", "SigLIP", siglip.ENCODER, "mean",
        marks=(*BLOCKS, "!v.class_embd", "!v.pre_ln.weight"),
        can={**CAN, "class_token": (False,), "pool": ("mean",)},
    ),
)  # fmt: skip
