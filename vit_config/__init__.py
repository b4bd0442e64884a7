"""The schema, presets and numpy facts that both twins share; imports neither framework."""

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
from vit_config.numerics.rope import Rope
from vit_config.output import ViTOutput
from vit_config.parameters import Parameter, parameters
from vit_config.presets import PRESETS, preset, preset_preprocess, preset_tags
from vit_config.recipe import Recipe
from vit_config.schema import ViTConfig

# what else is imported here serves this project's own packages
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
