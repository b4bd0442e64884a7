"""Which of timm's architectures a config.json may name for a model, and with which arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from parity.porting.dialects.dialect import NEUTRAL
from parity.porting.dialects.timm.arguments import architecture_only, arguments_of
from vit_config import PRESETS, ConfigError, ViTConfig
from vit_config.presets import from_timm

SAID = ("img_size", "in_chans", "num_classes", "global_pool")
"""Arguments that timm writes of every model."""
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RmsNorm"}
"""timm's classes of norms."""


class _Candidate(NamedTuple):
    """An architecture that can be told to be a model; the least is the most like it."""

    in_the_way: int
    """How many obstacles."""
    differences: tuple[int, int, int, int]
    name: str
    arguments: dict[str, Any]
    obstacles: tuple[str, ...]
    """Fields and arguments in which no JSON makes it the model."""


def nearest(cfg: ViTConfig, modules: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The architecture of some modules that is most like a model, and the arguments that make it that.

    Raises:
        ConfigError: none can be told in JSON to be this model.
    """
    found = min(_candidates(cfg, modules))
    if found.obstacles:
        raise ConfigError(_refusal(cfg, found))
    return found.name, found.arguments


def _candidates(cfg: ViTConfig, modules: tuple[str, ...]) -> Iterator[_Candidate]:
    for name, entry in from_timm.architectures().items():
        module = entry["module"]
        if module not in modules:
            continue
        base = PRESETS[name]
        ours, theirs = arguments_of(cfg, module), arguments_of(base, module)
        fixed = architecture_only(cfg, module)
        obstacles = [field for field, value in fixed.items() if getattr(base, field) != value]
        obstacles += [key for key in ours if ours[key] is None and theirs.get(key) is not None]
        arguments = {key: value for key, value in ours.items() if value is not None}
        changes, others = _differences(cfg, base)
        if not changes:
            also = ("dynamic_img_size",) if cfg.dynamic_image_size != base.dynamic_image_size else ()
            arguments = {key: arguments[key] for key in (*SAID, *also) if key in arguments}
        differences = (changes, others, modules.index(module), abs(cfg.hidden_size - base.hidden_size))
        yield _Candidate(len(obstacles), differences, name, arguments, tuple(obstacles))


def _refusal(cfg: ViTConfig, found: _Candidate) -> str:
    """What is in the way of a model's nearest architecture, and what can be done instead."""
    base, module = PRESETS[found.name], from_timm.architectures()[found.name]["module"]
    ours, theirs = ({**each.model_dump(), **arguments_of(each, module)} for each in (cfg, base))
    said = ", ".join(
        f"{name} = {ours[name]} ({found.name} has {theirs[name]})" for name in found.obstacles
    )
    how = "for a model that is made in Python"
    if set(found.obstacles) <= {"norm", "norm_eps", "patch_norm"}:
        norm = f"functools.partial(timm.layers.{NORMS[cfg.norm]}, eps={cfg.norm_eps})"
        changed = [(key, repr(v)) for key, v in found.arguments.items() if v != theirs.get(key)]
        norms = ("norm_layer", "embed_norm_layer") if cfg.patch_norm else ("norm_layer",)
        given = {**dict(changed), **dict.fromkeys(norms, norm)}
        options = ", ".join(f"{key}={value}" for key, value in given.items())
        how = f"for timm.create_model({found.name!r}, {options})"
    return (
        f"timm's config.json cannot say {said}; write a file instead of a folder, such as"
        f" out.safetensors or out.pth, {how}"
    )


def _differences(cfg: ViTConfig, base: ViTConfig) -> tuple[int, int]:
    """In how many fields of the function two models differ but for the sizes, and in how many others."""
    fields = [name for name in cfg.fields() if getattr(cfg, name) != getattr(base, name)]
    if (cfg.layer_scale is None) == (base.layer_scale is None):
        fields = [name for name in fields if name != "layer_scale"]
    light = (*NEUTRAL, "image_size", "in_channels", "num_classes")
    heavy = [name for name in fields if name not in light or name == "layer_scale_on"]
    return len(heavy), len(fields) - len(heavy)
