"""The text towers of OpenAI's CLIP and of open_clip, beside their image towers.

In a file of open_clip the tower's tensors are at the top, or under ``text.``. A text tower of
transformers, which open_clip can use too, is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from parity.porting.dialects.dialect import Fixed, by_code
from parity.porting.dialects.records.clip import NORM_BEFORE
from parity.porting.dialects.records.open_clip_config import FILE, PLAIN, model_of, ratio_of
from parity.porting.dialects.table import Table, add_prefix, layer, respell_names, row
from parity.porting.reading.live import act_of, first
from parity.porting.text.cleaning import CLEANINGS
from parity.porting.text.dialect import Contents, TextDialect
from vit_config import ConfigError, TextConfig, ViTConfig

TEXT = {
    "context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12, "mlp_ratio": 4.0,
    "pool_type": "argmax", "eos_id": 2, "no_causal_mask": False,
}  # fmt: skip
"""Defaults of the entries of text_cfg."""
TOKENIZER = "local-dir"
"""Any name: with one, open_clip/factory.py: get_tokenizer takes the folder's tokenizer, not CLIP's."""
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
    *respell_names(BLOCKS, {"visual.transformer": "transformer"}),
    *layer("norm", "ln_final"),
    *row("head.weight", "text_projection", "i o -> o i"),
)
WITH_BIAS: Table = (
    *(each for each in TOP if each.ours != ("head.weight",)),
    *layer("head", "text_projection"),
)


def _stated(sidecars: Mapping[str, Any]) -> dict[str, Any]:
    model = model_of(sidecars)
    text = model.get("text_cfg")
    if not isinstance(text, dict):
        return {}
    if other := [name for name in OTHERS if text.get(name)]:
        raise ConfigError(f"{FILE}: text_cfg has {', '.join(other)}, which is not read")
    entries = {**TEXT, **text}
    if entries["pool_type"] not in POOLS:
        raise ConfigError(
            f"{FILE}: text_cfg has pool_type = {entries['pool_type']!r}, expected {', '.join(POOLS)}"
        )
    try:
        quick, options = bool(model.get("quick_gelu", False)), entries.get("act_kwargs") or {}
        act = {None: "gelu", "none": "gelu", "tanh": "gelu_tanh"}[options.get("approximate")]
        return {
            "context_length": entries["context_length"],
            "vocab_size": entries["vocab_size"],
            "hidden_size": entries["width"],
            "depth": entries["layers"],
            "num_heads": entries["heads"],
            "mlp_dim": int(entries["width"] * entries["mlp_ratio"]),
            "act": "quick_gelu" if quick else act,
            "norm_eps": float((entries.get("norm_kwargs") or {}).get("eps", 1e-5)),
            "causal": not entries["no_causal_mask"],
            "pool": POOLS[entries["pool_type"]],
            "eos_id": entries["eos_id"] if entries["pool_type"] == "eos" else None,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{FILE}: not a config of open_clip ({error})") from None


def _modules(model: Any) -> dict[str, Any]:
    """Return what a model's modules state, as far as they are of open_clip's own tower."""
    facts: dict[str, Any] = {}
    with suppress(AttributeError, IndexError, KeyError, TypeError):  # another class: it is asked for
        tower = getattr(model, "text", model)
        blocks = tower.transformer.resblocks
        facts["num_heads"], facts["norm_eps"] = first(blocks, "num_heads"), first(blocks, "eps")
        facts["act"] = act_of(blocks[0].mlp.gelu)
        facts["causal"] = tower.attn_mask is not None
        alone = tower is not model
        pool = POOLS[tower.pool_type if alone else model.text_pool_type]
        ends = tower.eos_id if alone else model.text_eos_id
        facts |= {"pool": pool, "eos_id": ends if pool == "eos" else None}
    return {name: value for name, value in facts.items() if value is not None or name == "eos_id"}


def _cleans(sidecars: Mapping[str, Any]) -> str:
    """Return what open_clip does to texts before its tokenizer sees them.

    Its own tokenizer makes them small, one of Hugging Face's joins spaces alone
    (open_clip/tokenizer.py).
    """
    text = model_of(sidecars).get("text_cfg") or {}
    text = text if isinstance(text, dict) else {}
    options = text.get("tokenizer_kwargs") or {}
    options = dict(options) if isinstance(options, dict) else {"tokenizer_kwargs": options}
    clean = options.pop("clean", None) or ("whitespace" if text.get("hf_tokenizer_name") else "lower")
    others = {name: value for name, value in options.items() if value and name != "context_length"}
    if others or clean not in CLEANINGS:
        return ", ".join(f"{name} = {value}" for name, value in {"clean": clean, **others}.items())
    return clean


def _openai(fields: Mapping[str, Any]) -> dict[str, Fixed]:
    return {
        **by_code("clip/model.py: transformer_heads = transformer_width // 64",
                  num_heads=fields["hidden_size"] // 64),
        **by_code("clip/model.py: QuickGELU", act="quick_gelu"),
        **by_code("torch.nn.LayerNorm: eps = 1e-5", norm_eps=1e-5),
        **by_code("clip/model.py: build_attention_mask", causal=True),
        **by_code("clip/model.py: text.argmax(dim=-1)", pool="largest", eos_id=None),
    }  # fmt: skip


def _files(files: Contents, cfg: TextConfig, image: ViTConfig) -> Contents:
    encoder = cfg.encoder
    text: dict[str, Any] = {
        "context_length": cfg.context_length,
        "vocab_size": cfg.vocab_size,
        "width": cfg.hidden_size,
        "heads": cfg.num_heads,
        "layers": cfg.depth,
        "mlp_ratio": ratio_of(encoder),
        "no_causal_mask": not cfg.causal,
        "pool_type": next(name for name, ours in POOLS.items() if ours == cfg.pool),
        "proj_type": "linear" if cfg.projection_dim else "none",
        "proj_bias": cfg.projection_bias,
    }
    text |= {"eos_id": cfg.eos_id} if cfg.eos_id is not None else {}
    text |= {"norm_kwargs": {"eps": cfg.norm_eps}} if cfg.norm_eps != 1e-5 else {}
    text |= {"act_kwargs": {"approximate": "tanh"}} if cfg.act == "gelu_tanh" else {}
    both = {"text_cfg": text, **({"init_logit_bias": 0.0} if cfg.logit_bias else {})}
    content = files[FILE]
    return {**files, FILE: {**content, "model_cfg": {**content["model_cfg"], **both}}}


def _siglip_files(files: Contents, cfg: TextConfig, image: ViTConfig) -> Contents:
    both = _files(files, cfg, image)
    text = {**both[FILE]["model_cfg"]["text_cfg"], "hf_tokenizer_name": TOKENIZER}
    return {**both, FILE: {**both[FILE], "model_cfg": {**both[FILE]["model_cfg"], "text_cfg": text}}}


def _limits(cfg: TextConfig) -> Iterator[str]:
    if not cfg.logit_scale:
        yield "it always has a scale of the logits"
    if cfg.act not in ("gelu", "gelu_tanh", "quick_gelu"):
        yield f"its texts have no act = {cfg.act}"


def _openai_limits(cfg: TextConfig) -> Iterator[str]:
    if cfg.hidden_size != 64 * cfg.num_heads or cfg.mlp_dim != 4 * cfg.hidden_size:
        yield "its heads are 64 wide and its MLP is 4 times as wide as a token"
    if (cfg.act, cfg.norm_eps, cfg.causal, cfg.pool) != ("quick_gelu", 1e-5, True, "largest"):
        yield "its texts have act = quick_gelu, norm_eps = 1e-05 and a mask, and pool = largest"
    if cfg.projection_dim is None or cfg.projection_bias or not cfg.logit_scale or cfg.logit_bias:
        yield "it has a projection without bias, and a scale of the logits without bias"


def _numbers(cfg: TextConfig) -> dict[str, np.ndarray]:
    """Return what OpenAI's archives hold beside the parameters."""
    return {name: np.array(getattr(cfg, name)) for name in ("context_length", "vocab_size")}


AT_TOP = (
    "token_embedding.*", "positional_embedding", "transformer.*", "ln_final.*", "text_projection*",
    "logit_scale", "logit_bias",
)  # fmt: skip
BESIDE = ("open-clip", "open-clip-norm-after-mean", "open-clip-timm")
CUSTOM = TextDialect(
    name="open-clip-custom-text",
    title="open_clip",
    beside=BESIDE,
    tables=((*add_prefix("text.", TOP), *SCALARS), (*add_prefix("text.", WITH_BIAS), *SCALARS)),
    mark="text.token_embedding.weight",
    tower=("text.*", "logit_scale", "logit_bias"),
    stated=_stated,
    modules=_modules,
    cleans=_cleans,
    buffers=("text.attn_mask",),
)
"""The text tower as a module of its own."""
DIALECTS = (
    TextDialect(
        name="open-clip-text",
        title="open_clip",
        beside=BESIDE,
        tables=((*TOP, *SCALARS), (*WITH_BIAS, *SCALARS)),
        mark="token_embedding.weight",
        tower=AT_TOP,
        stated=_stated,
        modules=_modules,
        cleans=_cleans,
        limits=_limits,
        files=_files,
    ),
    replace(CUSTOM, limits=lambda cfg: iter(("another form of open-clip-text, which is written",))),
    replace(
        CUSTOM,
        name="open-clip-siglip-text",
        beside=("open-clip-siglip",),
        limits=_limits,
        files=_siglip_files,
    ),
    TextDialect(
        name="clip-text",
        title="OpenAI's CLIP",
        beside=("clip",),
        tables=((*TOP, *SCALARS),),
        mark="token_embedding.weight",
        tower=AT_TOP,
        follows=_openai,
        cleans=lambda sidecars: "lower",
        limits=_openai_limits,
        extra=_numbers,
    ),
)
