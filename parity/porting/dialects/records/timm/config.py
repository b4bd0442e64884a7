"""Conversion between timm's ``config.json`` and a schema with preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.porting.dialects.records.timm.arguments import fields_of_arguments
from parity.porting.dialects.records.timm.nearest import Constructor, constructor, module_text, refusal
from parity.porting.formats.metadata import Metadata
from vit_config import PRESETS, ConfigError, Preprocess, ViTConfig
from vit_config.presets import from_timm

MODULES = {
    "timm-vit": ("vision_transformer", "deit"),
    "timm-eva": ("eva",),
    "timm-eva-split": ("eva",),
    "timm-beit": ("beit",),
    "timm-naflex": ("naflexvit",),
    "timm-gemma4": ("gemma4_vit",),
    "timm-gemma4-encoder": ("gemma4_vit",),
}
"""Modules of timm whose models are in each dialect."""
FIRST = {
    "timm-naflex": "embeds.proj",
    "timm-gemma4": "encoder.patch_embed.input_proj",
    "timm-gemma4-encoder": "patch_embed.input_proj",
}
"""The patch projection, where it has another name."""
HEADLESS = "TimmWrapperModel"
"""The class of transformers that builds timm's model without its head, whatever its config says."""
PREPROCESS = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "interpolation": "bicubic",
    "crop_pct": 0.875,
    "crop_mode": "center",
}
"""timm's defaults for entries that a config.json leaves out."""


class TimmSettings:
    """The config.json of timm's folders.

    Args:
        dialect: the name of the dialect whose models it describes.
    """

    def __init__(self, dialect: str):
        self.dialect = dialect

    def recognise(self, sidecars: Mapping[str, Any]) -> bool:
        """Return whether config.json names an architecture of this dialect, or, for timm-vit, an unknown
        one."""
        config = sidecars.get("config.json")
        if not isinstance(config, dict) or not isinstance(config.get("architecture"), str):
            return False
        if not any(key in config for key in ("pretrained_cfg", "model_args", "input_size")):
            return False
        entry = from_timm.architectures().get(config["architecture"])
        return entry["module"] in MODULES[self.dialect] if entry else self.dialect == "timm-vit"

    def fields(self, sidecars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema's fields that config.json states.

        Raises:
            ConfigError: no schema can express the architecture, an argument or a value.
        """
        config, pretrained = _parts(sidecars)
        name = config["architecture"]
        entry = from_timm.architectures().get(name)
        if entry is None:
            raise ConfigError(
                f"config.json: architecture = {name!r} is not one of the"
                f" {len(from_timm.architectures())} Vision Transformers of timm that are known here"
            )
        channels, *size = _input_size(pretrained)
        arguments = {"num_classes": pretrained.get("num_classes", 1000), "in_chans": channels}
        if pretrained.get("fixed_input_size") or entry["module"] in ("naflexvit", "gemma4_vit"):
            arguments["img_size"] = size
        given = config.get("model_args") or {}
        if not isinstance(given, dict):
            raise ConfigError(f"config.json: model_args = {given!r} is not an object")
        given = {key: value for key, value in given.items() if value is not None}
        wraps = config.get("model_type") == "timm_wrapper"  # a host's tower has no list of classes
        if HEADLESS in (config.get("architectures") or [HEADLESS] * wraps):
            given["num_classes"] = 0
        try:
            return fields_of_arguments({**arguments, **given}, entry["module"], PRESETS[name])
        except ConfigError as error:
            raise ConfigError(f"config.json: {name}: {error}") from None

    def metadata(self, sidecars: Mapping[str, Any], fields: Mapping[str, Any]) -> Metadata:
        """Return timm's preprocessing for this model, its class names and its licence.

        Raises:
            ConfigError: a `Preprocess` cannot express it.
        """
        config, pretrained = _parts(sidecars)
        entries = {key: pretrained.get(key, default) for key, default in PREPROCESS.items()}
        entries["crop_fraction"] = entries.pop("crop_pct")
        _, height, width = _input_size(pretrained)
        fixed = pretrained.get("fixed_input_size", False)
        own_size = None if fixed or (height, width) == fields["image_size"] else (height, width)
        try:
            return Metadata(
                pixels=Preprocess(**entries, image_size=own_size),
                class_names=_class_names(config.get("label_names") or pretrained.get("label_names")),
                license=pretrained.get("license"),
            )
        except ConfigError as error:
            raise ConfigError(f"config.json: {error}") from None

    def files(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, dict[str, Any]]:
        """Return a config.json with which ``timm.create_model("local-dir:FOLDER")`` builds this model.

        Raises:
            ConfigError: no architecture of timm's with arguments from JSON is this model.
        """
        call = self.constructor(cfg)
        if call.obstacles:
            raise ConfigError(refusal(cfg, call))
        config = {
            "architecture": call.name,
            "num_classes": cfg.num_classes,
            "num_features": cfg.hidden_size,
            "global_pool": call.arguments["global_pool"],
            **_label_names(metadata),
            "model_args": call.arguments,
            "pretrained_cfg": self._pretrained(cfg, metadata),
        }
        return {"config.json": config}

    def code(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, str]:
        """Return a Python module that builds this model, if a config.json cannot express its norm."""
        call = self.constructor(cfg)
        if not call.obstacles:
            return {}
        pretrained = {**self._pretrained(cfg, metadata), **_label_names(metadata)}
        return {"model.py": module_text(call, pretrained)}

    def made_by(self, cfg: ViTConfig) -> str:
        """Return the Python call that builds this model; empty if there is none."""
        try:
            return self.constructor(cfg).text
        except ConfigError:
            return ""

    def constructor(self, cfg: ViTConfig) -> Constructor:
        """Return the call that builds this model.

        Raises:
            ConfigError: there is none.
        """
        call = constructor(cfg, MODULES[self.dialect])
        if MODULES[self.dialect] == ("eva",):
            call.arguments["qkv_fused"] = self.dialect == "timm-eva"
        return call

    def _pretrained(self, cfg: ViTConfig, metadata: Metadata) -> dict[str, Any]:
        """Return the ``pretrained_cfg``: sizes, preprocessing and licence."""
        size = (metadata.pixels and metadata.pixels.image_size) or cfg.image_size
        fixed = not cfg.dynamic_image_size or self.dialect == "timm-beit"
        pretrained: dict[str, Any] = {
            "input_size": [cfg.in_channels, *(cfg.image_size if fixed else size)],
            "fixed_input_size": fixed,
            "num_classes": cfg.num_classes,
            "pool_size": None,
            "first_conv": FIRST.get(self.dialect, "patch_embed.proj"),
            "classifier": ["head", "head_dist"] if cfg.distill_token else "head",
        }
        if (pixels := metadata.pixels) is not None:
            pretrained |= {key: getattr(pixels, key) for key in PREPROCESS if key != "crop_pct"}
            pretrained["crop_pct"] = pixels.crop_fraction
        if metadata.license:
            pretrained["license"] = metadata.license
        return pretrained


def _label_names(metadata: Metadata) -> dict[str, list[str]]:
    return {"label_names": list(metadata.class_names)} if metadata.class_names else {}


def _parts(sidecars: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the whole config and its ``pretrained_cfg``; in old files they are the same."""
    config = sidecars["config.json"]
    pretrained = config.get("pretrained_cfg") or config
    if not isinstance(pretrained, dict):
        raise ConfigError(f"config.json: pretrained_cfg = {pretrained!r} is not an object")
    return config, {**pretrained, **{key: config[key] for key in ("num_classes",) if key in config}}


def _input_size(pretrained: Mapping[str, Any]) -> list[int]:
    """Return channels, height and width."""
    size = pretrained.get("input_size", [3, 224, 224])
    if not isinstance(size, list) or len(size) != 3 or not all(isinstance(side, int) for side in size):
        raise ConfigError(f"config.json: input_size = {size!r}; expected channels, height and width")
    return size


def _class_names(names: Any) -> tuple[str, ...] | None:
    """Return class names in the order of the logits; a mapping from indices has to name all of them."""
    if isinstance(names, dict):
        count = len(names)
        if sorted(names) != sorted(map(str, range(count))):
            return None
        return tuple(names[str(index)] for index in range(count))
    return tuple(names) if isinstance(names, list) and names else None
