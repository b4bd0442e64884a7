"""The text towers of transformers' CLIP, SigLIP and SigLIP 2, beside their image towers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parity.porting.dialects.dialect import Fixed, Unsaid, by_code
from parity.porting.dialects.records.hf.clip import BLOCKS
from parity.porting.dialects.records.hf.config import Key
from parity.porting.dialects.records.hf.keys import CONFIG, act_key
from parity.porting.dialects.table import Table, layer, respell_names, row
from parity.porting.text.dialect import Contents, TextDialect
from vit_config import TextConfig, ViTConfig

TOWER = "text_model"
ENCODER: Table = (
    *row("token_embed", f"{TOWER}.embeddings.token_embedding.weight"),
    *row("pos_embed", f"{TOWER}.embeddings.position_embedding.weight"),
    *respell_names(BLOCKS, {"encoder.": f"{TOWER}.encoder."}),
    *layer("norm", f"{TOWER}.final_layer_norm"),
)
CLIP: Table = (*ENCODER, *layer("head", "text_projection"), *row("logit_scale", "logit_scale"))
SIGLIP: Table = (
    *ENCODER,
    *layer("head", f"{TOWER}.head"),
    *row("logit_scale", "logit_scale", "1 -> "),
    *row("logit_bias", "logit_bias", "1 -> "),
)
IDS = (f"{TOWER}.embeddings.position_ids",)
OLD_END = 2
"""The eos_token_id of configs from before transformers' pull request 24773, which its code takes to say
that the largest id ends a text."""


def _keys(width: int, hidden: int, heads: int, length: int, act: str, eps: float) -> tuple[Key, ...]:
    """Return the entries that are fields, with the defaults of the library's class."""
    return (
        Key("vocab_size", "vocab_size", 49408 if act == "quick_gelu" else 32000),
        Key("hidden_size", "hidden_size", width),
        Key("intermediate_size", "mlp_dim", hidden),
        Key("num_hidden_layers", "depth", 12),
        Key("num_attention_heads", "num_heads", heads),
        Key("max_position_embeddings", "context_length", length),
        Key("layer_norm_eps", "norm_eps", eps, float),
        act_key(act),
    )


KEYS = {
    "clip": _keys(512, 2048, 8, 77, "quick_gelu", 1e-5),
    "siglip": _keys(768, 3072, 12, 64, "gelu_pytorch_tanh", 1e-6),
    "siglip2": _keys(768, 3072, 12, 64, "gelu_pytorch_tanh", 1e-6),
}
"""The entries of each model by its ``model_type``."""
CLASSES = {"clip": "CLIP", "siglip": "Siglip", "siglip2": "Siglip2"}


def _section(sidecars: Mapping[str, Any], model: str) -> Mapping[str, Any] | None:
    config = sidecars.get(CONFIG)
    if not isinstance(config, dict) or config.get("model_type") != model:
        return None
    # what older files call it stands above the other, as in the library's code
    section = config.get("text_config_dict") or config.get("text_config") or {}
    return section if isinstance(section, dict) else None


def _stated(sidecars: Mapping[str, Any], model: str) -> dict[str, Any]:
    entries = _section(sidecars, model)
    if entries is None:
        return {}
    fields: dict[str, Any] = {}
    for key in KEYS[model]:
        fields |= {n: v for n, v in key.into_fields(entries).items() if not isinstance(v, Unsaid)}
    return fields


def _files(model: str) -> Callable[[Contents, TextConfig, ViTConfig], Contents]:
    """Return the function that makes the config file of both towers."""

    def files(files: Contents, cfg: TextConfig, image: ViTConfig) -> Contents:
        vision = {n: v for n, v in files[CONFIG].items() if n != "architectures"}
        text: dict[str, Any] = {"model_type": f"{model}_text_model"}
        for key in KEYS[model]:
            assert isinstance(key.fields, str)
            text[key.name] = key.write(getattr(cfg, key.fields))
        if model == "clip":
            text |= {"eos_token_id": OLD_END if cfg.pool == "largest" else cfg.eos_id}
            text |= {"projection_dim": cfg.projection_dim}
        else:
            text |= {"projection_size": cfg.projection_dim}
        whole = {"architectures": [f"{CLASSES[model]}Model"], "model_type": model}
        width = {"projection_dim": cfg.projection_dim} if model == "clip" else {}
        return {**files, CONFIG: {**whole, **width, "text_config": text, "vision_config": vision}}

    return files


def _clip_limits(cfg: TextConfig) -> Iterator[str]:
    if not cfg.causal or cfg.pool not in ("eos", "largest"):
        yield f"its texts are causal and pooled at their end (causal = {cfg.causal}, pool = {cfg.pool})"
    if cfg.eos_id == OLD_END:
        yield f"its code takes eos_id = {OLD_END} to mean pool = largest"
    if cfg.projection_dim is None or cfg.projection_bias or not cfg.logit_scale or cfg.logit_bias:
        yield "it has a projection without bias, and a scale of the logits without bias"


def _siglip_limits(cfg: TextConfig) -> Iterator[str]:
    if cfg.causal or cfg.pool != "last":
        yield f"its texts are pooled at the last token, and see all (pool = {cfg.pool})"
    if cfg.projection_dim is None or not cfg.projection_bias or not cfg.logit_bias:
        yield "it has a projection with bias, and scale and bias of the logits"


def _clip(sidecars: Mapping[str, Any]) -> dict[str, Any]:
    fields = _stated(sidecars, "clip")
    end = (_section(sidecars, "clip") or {}).get("eos_token_id", 49407) if fields else None
    if end == OLD_END:
        return {**fields, "pool": "largest", "eos_id": None}
    return {**fields, "pool": "eos", "eos_id": end} if isinstance(end, int) else fields


def _clip_code(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    return by_code("CLIPTextModel: create_causal_mask", causal=True)


def _siglip_code(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    last = by_code("SiglipTextModel: last_hidden_state[:, -1, :]", pool="last", eos_id=None)
    return {**by_code("SiglipTextModel: create_bidirectional_mask", causal=False), **last}


def _siglip(family: str, version: str) -> TextDialect:
    return TextDialect(
        name=f"hf-{family}-text",
        title=f"transformers' SigLIP{version}",
        beside=(f"hf-{family}-vision",),
        tables=(SIGLIP,),
        mark=f"{TOWER}.embeddings.token_embedding.weight",
        tower=(f"{TOWER}.*", "logit_scale", "logit_bias"),
        stated=lambda sidecars: _stated(sidecars, family),
        follows=_siglip_code,
        cleans=lambda sidecars: f"{CLASSES[family]}Tokenizer",
        buffers=IDS,
        limits=_siglip_limits,
        files=_files(family),
        image_prefix="vision_model.",
    )


DIALECTS = (
    TextDialect(
        name="hf-clip-text",
        title="transformers' CLIP",
        beside=("hf-clip-vision",),
        tables=(CLIP,),
        mark=f"{TOWER}.embeddings.token_embedding.weight",
        tower=(f"{TOWER}.*", "text_projection.*", "logit_scale"),
        stated=_clip,
        follows=_clip_code,
        cleans=lambda sidecars: "CLIPTokenizer",
        buffers=IDS,
        limits=_clip_limits,
        files=_files("clip"),
        image_prefix="vision_model.",
    ),
    _siglip("siglip", ""),
    _siglip("siglip2", " 2"),
)
