"""Models to files and back, in either framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from vit_config import ConfigError, Preprocess, ViTConfig, WeightsError, read_weights, write_weights

Framework = Literal["jax", "torch"]


class Loaded(NamedTuple):
    """A model read from a file."""

    config: ViTConfig
    preprocess: Preprocess | None
    """None where nobody knows how the images were prepared."""
    model: Any
    """`vit_jax.ViT`, or `vit_torch.ViT` in evaluation mode."""


def load(path: str | Path, *, framework: Framework) -> Loaded:
    """Read a weights file into one twin; the other framework is not imported.

    Raises:
        MissingFileError: there is no such file.
        WeightsError: not a weights file of this project, truncated or damaged, or not the tensors
            that its schema asks for.
    """
    weights = read_weights(path)
    try:
        model = _twin(framework).from_arrays(weights.config, weights.arrays)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from None
    return Loaded(weights.config, weights.preprocess, model)


def save(path: str | Path, model: Any, *, preprocess: Preprocess | None = None) -> None:
    """Write either twin's model to a weights file, whole or not at all.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: the path is a folder, or the model is not one of the twins'.
    """
    framework = type(model).__module__.partition(".")[0].removeprefix("vit_")
    if not hasattr(model, "cfg"):
        raise ConfigError(f"{type(model).__qualname__} is not a model of vit_jax or vit_torch")
    write_weights(path, model.cfg, _twin(framework).to_arrays(model), preprocess)


def _twin(framework: str) -> Any:
    if framework == "jax":
        import vit_jax

        return vit_jax
    if framework == "torch":
        import vit_torch

        return vit_torch
    raise ConfigError(f'framework = {framework!r}; expected "jax" or "torch"')
