"""Reading and writing ``open_clip_config.json``: the image tower's sizes and the preprocessing.

The file leaves out entries at their defaults, and some defaults are in the code that reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parity.porting.dialects.dialect import NEUTRAL
from parity.porting.dialects.records.timm.nearest import constructor
from parity.porting.formats.metadata import Metadata
from vit_config import PRESETS, ConfigError, Preprocess, ViTConfig, preset

FILE = "open_clip_config.json"
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
MODES: dict[str, Literal["center", "squash"]] = {"shortest": "center", "squash": "squash"}
"""Our crop_mode by its resize_mode; "longest" pads with black, which a `Preprocess` cannot express."""
FILTERS = ("bicubic", "bilinear")
"""Those of its interpolations that mean one filter."""
POOLS = {"tok": "class", "avg": "mean"}
TIMM_POOLS = {"token": "class", "avg": "mean", "map": "map"}
VISION = {
    "layers": 12, "width": 768, "head_width": 64, "mlp_ratio": 4.0, "patch_size": 16, "image_size": 224,
    "ls_init_value": None, "patch_dropout": 0.0, "no_ln_pre": False, "pool_type": "tok",
}  # fmt: skip
"""Defaults of the entries of vision_cfg."""
PLAIN = (
    "attentional_pool", "qk_norm", "scaled_cosine_attn", "scale_heads", "scale_attn_inner", "scale_attn",
    "scale_fc",
)  # fmt: skip
"""Entries that change the function to one that is not supported."""


@dataclass(frozen=True)
class OpenClipSettings:
    """The config file of one kind of tower."""

    tower: Literal["vit", "vit_norm_after_mean", "timm"] = "vit"

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether the file exists and describes this kind of tower."""
        vision = model_of(sidecars).get("vision_cfg")
        if not isinstance(vision, dict) or isinstance(vision.get("layers"), list):
            return False  # a list counts the layers of a ResNet's stages
        after = vision.get("final_ln_after_pool", False) and vision.get("pool_type") == "avg"
        kind = "timm" if vision.get("timm_model_name") else ("vit_norm_after_mean" if after else "vit")
        return kind == self.tower

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema's fields that the file states.

        Raises:
            ConfigError: it states a model that no schema can express.
        """
        model = model_of(sidecars)
        vision = model["vision_cfg"]
        try:
            if self.tower == "timm":
                return _timm_fields(vision)
            return _vit_fields({**VISION, **vision}, model)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ConfigError(f"{FILE}: not a config of open_clip ({error})") from None

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return the preprocessing, if a `Preprocess` can express it; a tower has no classes."""
        entries = sidecars[FILE].get("preprocess_cfg") or {}
        mode = MODES.get(entries.get("resize_mode", "shortest"))
        name = entries.get("interpolation", "bicubic")
        if mode is None or name not in FILTERS:
            return Metadata()
        size = model_of(sidecars)["vision_cfg"].get("image_size")
        if mode == "center" and isinstance(size, list) and len(set(size)) > 1:
            name = "bicubic"  # open_clip ignores the entry then
        mean, std = tuple(entries.get("mean", MEAN)), tuple(entries.get("std", STD))
        return Metadata(pixels=Preprocess(mean=mean, std=std, interpolation=name, crop_mode=mode))

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return the config file of a model without its text tower."""
        pixels = _entries(metadata.pixels) if metadata.pixels else {}
        if self.tower == "timm":
            return {FILE: {"model_cfg": _siglip(cfg), **pixels}}
        width = cfg.hidden_size
        vision: dict[str, Any] = {
            "image_size": _side(cfg.image_size),
            "layers": cfg.depth,
            "width": width,
            "head_width": cfg.head_dim,
            "mlp_ratio": ratio_of(cfg),
            "patch_size": _side(cfg.patch_size),
            "ls_init_value": cfg.layer_scale,
            "patch_dropout": cfg.dropout_patch,
            "no_ln_pre": not cfg.pre_norm,
            "pool_type": next(name for name, ours in POOLS.items() if ours == cfg.pool),
            "final_ln_after_pool": cfg.final_norm == "post_pool",
        }
        if cfg.norm_eps != 1e-5:
            vision["norm_kwargs"] = {"eps": cfg.norm_eps}
        if cfg.act == "gelu_tanh":
            vision["act_kwargs"] = {"approximate": "tanh"}
        quick = cfg.act == "quick_gelu"
        model = {"embed_dim": cfg.num_classes, "quick_gelu": quick, "vision_cfg": vision}
        return {FILE: {"model_cfg": model, **pixels}}


def model_of(sidecars: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the file's entries of the model; none if there is no such file."""
    content = sidecars.get(FILE)
    model = content.get("model_cfg") if isinstance(content, dict) else None
    return model if isinstance(model, dict) else {}


def _vit_fields(vision: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    if other := [name for name in PLAIN if vision.get(name)]:
        raise ConfigError(f"{FILE}: vision_cfg has {', '.join(other)}, which is not converted")
    if vision["pool_type"] not in POOLS:
        raise ConfigError(f"{FILE}: pool_type = {vision['pool_type']!r}, expected {' or '.join(POOLS)}")
    quick, options = bool(model.get("quick_gelu", False)), vision.get("act_kwargs") or {}
    act = {None: "gelu", "none": "gelu", "tanh": "gelu_tanh"}[options.get("approximate")]
    width = vision["width"]
    return {
        "image_size": vision["image_size"],
        "patch_size": vision["patch_size"],
        "hidden_size": width,
        "depth": vision["layers"],
        "num_heads": width // vision["head_width"],
        "mlp_dim": int(width * vision["mlp_ratio"]),
        "num_classes": model["embed_dim"],
        "act": "quick_gelu" if quick else act,
        "norm_eps": (vision.get("norm_kwargs") or {}).get("eps", 1e-5),
        "pre_norm": not vision["no_ln_pre"],
        "layer_scale": vision["ls_init_value"],
        "dropout_patch": vision["patch_dropout"],
        "pool": POOLS[vision["pool_type"]],
    }


OWN_TOWER = "vit_siglip_of_this_folder"
"""Name of the model that a module beside the config registers, where timm has none of the schema."""
MODULE = '''"""Registers timm's model of the image tower by the name that open_clip_config.json has.

    import model, open_clip

    clip = open_clip.create_model("local-dir:FOLDER")
"""

import functools

import timm
import timm.layers
from timm.models import register_model


@register_model
def {name}(pretrained=False, **options):
    """The image tower with initial weights; options as `timm.create_model` takes them."""
    given = dict(
{lines}    )
    return timm.create_model("{base}", **{{**given, **options}})
'''


def _tower_of_timm(cfg: ViTConfig) -> str:
    """Return the name of timm's model of a schema without arguments; empty if there is none."""
    call = constructor(cfg, ("vision_transformer",))
    base = PRESETS[call.name]
    free = {name: getattr(cfg, name) for name in (*NEUTRAL, "num_classes", "layer_scale")}
    return call.name if base.replace(**free) == cfg else ""


def siglip_module(cfg: ViTConfig) -> dict[str, str]:
    """Return the Python module to write beside the config where timm has no model of this schema."""
    if _tower_of_timm(cfg):
        return {}
    call = constructor(cfg, ("vision_transformer",))
    lines = "".join(f"        {key}={value},\n" for key, value in call.texts.items())
    return {"model.py": MODULE.format(name=OWN_TOWER, base=call.name, lines=lines)}


def _siglip(cfg: ViTConfig) -> dict[str, Any]:
    vision = {
        "image_size": _side(cfg.image_size),
        "timm_model_name": _tower_of_timm(cfg) or OWN_TOWER,
        "timm_model_pretrained": False,
        "timm_pool": next(name for name, ours in TIMM_POOLS.items() if ours == cfg.pool),
        "timm_proj": "none",
    }
    return {"embed_dim": cfg.hidden_size, "custom_text": True, "vision_cfg": vision}


def _timm_fields(vision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of timm's architecture, without those of the head that open_clip replaces."""
    if vision["timm_model_name"] == OWN_TOWER:
        return {"pool": TIMM_POOLS[vision["timm_pool"]]}
    cfg = preset(vision["timm_model_name"])
    open_ = ("num_classes", "head_bias", "final_norm")  # the tensors show them
    fields = {name: getattr(cfg, name) for name in cfg.fields() if name not in open_}
    pool = vision.get("timm_pool", "avg")
    return {**fields, "pool": TIMM_POOLS.get(pool, cfg.pool)}


def _entries(pixels: Preprocess) -> dict[str, Any]:
    """Return the preprocessing entries that the file can express; open_clip uses defaults for the rest.

    open_clip resizes to the model's size, never crops a squashed image, and has two filters.
    """
    modes = {ours: theirs for theirs, ours in MODES.items()}
    entries: dict[str, Any] = {"mean": list(pixels.mean), "std": list(pixels.std)}
    if pixels.interpolation in FILTERS:
        entries["interpolation"] = pixels.interpolation
    if pixels.crop_mode in modes:
        entries["resize_mode"] = modes[pixels.crop_mode]
    return {"preprocess_cfg": entries}


def ratio_of(cfg: ViTConfig) -> float:
    """Return a ratio for which ``int(width * ratio)`` is the width of the MLP."""
    ratio = cfg.mlp_dim / cfg.hidden_size
    return (
        ratio if int(cfg.hidden_size * ratio) == cfg.mlp_dim else (cfg.mlp_dim + 0.5) / cfg.hidden_size
    )


def _side(size: tuple[int, int]) -> int | list[int]:
    return size[0] if size[0] == size[1] else list(size)
