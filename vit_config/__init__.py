"""The schema, presets and numpy code that both twins share; imports neither framework.

Nothing is imported before it is used: an error class costs neither numpy nor pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vit_config.augmentation import Augment, Mix
    from vit_config.base import Schema
    from vit_config.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        InputError,
        MissingFileError,
        TrainingError,
        WeightsError,
    )
    from vit_config.files.weights_file import Weights, read_weights, write_weights
    from vit_config.images.preprocess import Preprocess
    from vit_config.numerics.resize import resize_weights
    from vit_config.output import ViTOutput
    from vit_config.presets import PRESETS, preset, preset_preprocess, preset_tags
    from vit_config.recipe import Recipe
    from vit_config.rope import Rope
    from vit_config.schema import ViTConfig
    from vit_config.text import TextConfig

# the other names here serve this project's own packages
__all__ = [
    "PRESETS",
    "Augment",
    "Mix",
    "Preprocess",
    "Recipe",
    "Rope",
    "ViTConfig",
    "ViTOutput",
    "preset",
]

_WHERE = {
    "augmentation": ("Augment", "Mix"),
    "base": ("Schema",),
    "errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "InputError",
        "MissingFileError",
        "TrainingError",
        "WeightsError",
    ),
    "files.weights_file": ("Weights", "read_weights", "write_weights"),
    "images.preprocess": ("Preprocess",),
    "numerics.resize": ("resize_weights",),
    "rope": ("Rope",),
    "output": ("ViTOutput",),
    "presets": ("PRESETS", "preset", "preset_preprocess", "preset_tags"),
    "recipe": ("Recipe",),
    "schema": ("ViTConfig",),
    "text": ("TextConfig",),
}
_MODULES = {name: f"vit_config.{module}" for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vit_config' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
