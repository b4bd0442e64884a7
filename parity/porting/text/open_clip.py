"""The text towers of OpenAI's CLIP and of open_clip, beside their image towers.

In a file of open_clip the tower's tensors are at the top, or under ``text.``. A text tower of
transformers, which open_clip can use too, is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.clip import NORM_BEFORE
from parity.porting.dialects.dialect import Fixed, by_code
from parity.porting.dialects.open_clip_config import FILE, PLAIN, model_of
from parity.porting.dialects.table import Table, layer, respelled, row, under
from parity.porting.text.dialect import TextDialect
from vit_config import ConfigError

TEXT = {
    "context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12, "mlp_ratio": 4.0,
    "pool_type": "argmax", "eos_id": 2, "no_causal_mask": False,
}  # fmt: skip
"""Defaults of the entries of text_cfg."""
POOLS = {"argmax": "largest", "eos": "eos", "last": "last", "first": "first"}
OTHERS = (*PLAIN, "hf_model_name", "embed_cls", "ls_init_value")
"""Entries that make another function of the tower."""
BLOCKS = tuple(each for each in NORM_BEFORE if "{i}" in each.theirs[0] and "gamma" not in each.theirs[0])
SCALARS: Table = tuple(
    each
    for name in ("logit_scale", "logit_bias")
    for each in (*row(name, name, axes=0), *row(name, name, "1 -> ", axes=1))
)
TOP: Table = (
    *row("token_embed", "token_embedding.weight"),
    *row("pos_embed", "positional_embedding"),
    *respelled(BLOCKS, {"visual.transformer": "transformer"}),
    *layer("norm", "ln_final"),
    *row("head.weight", "text_projection", "i o -> o i"),
)
CUSTOM: Table = under("text.", (*TOP, *layer("head", "text_projection")))


def _stated(sidecars: Mapping[str, Any]) -> dict[str, Any]:
    model = model_of(sidecars)
    text = model.get("text_cfg")
    if not isinstance(text, dict):
        return {}
    if other := [name for name in OTHERS if text.get(name)]:
        raise ConfigError(f"{FILE}: text_cfg has {', '.join(other)}, which is not read")
    told = {**TEXT, **text}
    if told["pool_type"] not in POOLS:
        raise ConfigError(
            f"{FILE}: text_cfg has pool_type = {told['pool_type']!r}, expected {', '.join(POOLS)}"
        )
    try:
        quick, options = bool(model.get("quick_gelu", False)), told.get("act_kwargs") or {}
        act = {None: "gelu", "none": "gelu", "tanh": "gelu_tanh"}[options.get("approximate")]
        return {
            "context_length": told["context_length"],
            "vocab_size": told["vocab_size"],
            "hidden_size": told["width"],
            "depth": told["layers"],
            "num_heads": told["heads"],
            "mlp_dim": int(told["width"] * told["mlp_ratio"]),
            "act": "quick_gelu" if quick else act,
            "norm_eps": float((told.get("norm_kwargs") or {}).get("eps", 1e-5)),
            "causal": not told["no_causal_mask"],
            "pool": POOLS[told["pool_type"]],
            "eos_id": told["eos_id"] if told["pool_type"] == "eos" else None,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{FILE}: not a config of open_clip ({error})") from None


def _cleans(sidecars: Mapping[str, Any]) -> str:
    """Return what open_clip does to texts before its tokenizer sees them, beyond its defaults."""
    text = model_of(sidecars).get("text_cfg") or {}
    options = text.get("tokenizer_kwargs") if isinstance(text, dict) else None
    clean = options.get("clean") if isinstance(options, dict) else None
    return clean if clean not in (None, "lower", "whitespace") else ""


def _openai(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    return {
        **by_code("clip/model.py: transformer_heads = transformer_width // 64",
                  num_heads=fields["hidden_size"] // 64),
        **by_code("clip/model.py: QuickGELU", act="quick_gelu"),
        **by_code("torch.nn.LayerNorm: eps = 1e-5", norm_eps=1e-5),
        **by_code("clip/model.py: build_attention_mask", causal=True),
        **by_code("clip/model.py: text.argmax(dim=-1)", pool="largest", eos_id=None),
    }  # fmt: skip


AT_TOP = (
    "token_embedding.*", "positional_embedding", "transformer.*", "ln_final.*", "text_projection",
    "logit_scale", "logit_bias",
)  # fmt: skip
BESIDE = ("open-clip", "open-clip-norm-after-mean", "open-clip-timm")
DIALECTS = (
    TextDialect(
        name="open-clip-text",
        title="open_clip",
        beside=BESIDE,
        tables=((*TOP, *SCALARS),),
        mark="token_embedding.weight",
        tower=AT_TOP,
        stated=_stated,
        cleans=_cleans,
    ),
    TextDialect(
        name="open-clip-custom-text",
        title="open_clip",
        beside=BESIDE,
        tables=((*CUSTOM, *SCALARS),),
        mark="text.token_embedding.weight",
        tower=("text.*", "logit_scale", "logit_bias"),
        stated=_stated,
        cleans=_cleans,
        buffers=("text.attn_mask",),
    ),
    TextDialect(
        name="clip-text",
        title="OpenAI's CLIP",
        beside=("clip",),
        tables=((*TOP, *SCALARS),),
        mark="token_embedding.weight",
        tower=AT_TOP,
        follows=_openai,
    ),
)
