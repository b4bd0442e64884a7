"""Which of timm's architectures a config.json may name for a model, and with which arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from parity.dialects.dialect import NEUTRAL
from parity.dialects.timm.arguments import architecture_only, arguments_of
from vit_config import PRESETS, ConfigError, ViTConfig
from vit_config.presets import from_timm

SAID = ("img_size", "in_chans", "num_classes", "global_pool")
"""Arguments that timm writes of every model."""


class _Candidate(NamedTuple):
    """An architecture that can be told to be a model; the least is the most like it."""

    differences: tuple[int, int, int, int]
    name: str
    arguments: dict[str, Any]


def nearest(cfg: ViTConfig, modules: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The architecture of some modules that is most like a model, and the arguments that make it that.

    Raises:
        ConfigError: none can be told in JSON to be this model.
    """
    found = min(_candidates(cfg, modules), default=None)
    if found is None:
        raise ConfigError(
            "no config.json tells an architecture of timm's to be this model: it cannot say"
            f" {_unsaid(cfg)}; write a file instead of a folder, for a model that is made in Python"
        )
    return found.name, found.arguments


def _candidates(cfg: ViTConfig, modules: tuple[str, ...]) -> Iterator[_Candidate]:
    for name, entry in from_timm.architectures().items():
        module = entry["module"]
        if module not in modules:
            continue
        base = PRESETS[name]
        fixed = architecture_only(cfg, module)
        if any(getattr(base, field) != value for field, value in fixed.items()):
            continue
        arguments, theirs = arguments_of(cfg, module), arguments_of(base, module)
        if any(value is None and theirs.get(key) is not None for key, value in arguments.items()):
            continue
        arguments = {key: value for key, value in arguments.items() if value is not None}
        changes, others = _differences(cfg, base)
        if not changes:
            also = ("dynamic_img_size",) if cfg.dynamic_image_size != base.dynamic_image_size else ()
            arguments = {key: arguments[key] for key in (*SAID, *also) if key in arguments}
        order = modules.index(module)
        distance = abs(cfg.hidden_size - base.hidden_size)
        yield _Candidate((changes, others, order, distance), name, arguments)


def _differences(cfg: ViTConfig, base: ViTConfig) -> tuple[int, int]:
    """In how many fields of the function two models differ but for the sizes, and in how many others."""
    fields = [name for name in cfg.fields() if getattr(cfg, name) != getattr(base, name)]
    if (cfg.layer_scale is None) == (base.layer_scale is None):
        fields = [name for name in fields if name != "layer_scale"]
    light = (*NEUTRAL, "image_size", "in_channels", "num_classes")
    heavy = [name for name in fields if name not in light or name == "layer_scale_on"]
    return len(heavy), len(fields) - len(heavy)


def _unsaid(cfg: ViTConfig) -> str:
    names = ("block", "num_parallel", "mlp", "norm", "norm_eps", "patch_norm", "distill_token")
    return ", ".join(f"{name} = {getattr(cfg, name)}" for name in names)
