"""The schema, presets and numpy facts that both twins share; imports neither framework."""

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
from vit_config.output import ViTOutput
from vit_config.preprocess import Preprocess
from vit_config.presets import PRESETS, preset
from vit_config.recipe import Augment, Recipe
from vit_config.schema import ViTConfig
from vit_config.weights_file import Weights, read_weights, write_weights

__all__ = [
    "PRESETS",
    "Augment",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "InputError",
    "MissingFileError",
    "Preprocess",
    "Recipe",
    "Schema",
    "TrainingError",
    "ViTConfig",
    "ViTOutput",
    "Weights",
    "WeightsError",
    "preset",
    "read_weights",
    "write_weights",
]
