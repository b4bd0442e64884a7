"""Models to files and back, in either framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parity.porting.checkpoint import read_checkpoint
from parity.porting.loaded import Framework, Loaded
from vit_config import ConfigError, Preprocess, write_weights
from vit_config.errors import naming


def load(source: str | Path, *, framework: Framework, **reading: Any) -> Loaded:
    """Read a checkpoint of any dialect into one twin; the other framework is not imported.

    Args:
        source: a file or folder, or a name on the Hugging Face Hub: ``hf-hub:org/name`` or
            ``timm:name.tag``, see `parity.porting.hub`.
        reading: what the checkpoint does not say itself, see `read_checkpoint`.

    Raises:
        MissingFileError: there is no such file, or nothing of that name.
        WeightsError: not a checkpoint of a known dialect, truncated or damaged, or not the tensors that
            its schema asks for.
        ConfigError: something that has to be stated was not, or what was stated is not valid.
    """
    twin = twin_of(framework)
    checkpoint = read_checkpoint(source, **reading)
    with naming(checkpoint.path):
        arrays = {name: stored.load() for name, stored in checkpoint.arrays.items()}
        model = twin.from_arrays(checkpoint.config, arrays)
    return Loaded(
        config=checkpoint.config,
        metadata=checkpoint.metadata,
        origins=checkpoint.origins,
        notes=checkpoint.notes,
        framework=framework,
        model=model,
    )


def save(path: str | Path, model: Any, *, preprocess: Preprocess | None = None) -> None:
    """Write either twin's model to a weights file, whole or not at all.

    Raises:
        MissingFileError: the folder to write in does not exist.
        ConfigError: the path is a folder, or the model is not one of the twins'.
    """
    framework = type(model).__module__.partition(".")[0].removeprefix("vit_")
    if not hasattr(model, "cfg"):
        raise ConfigError(f"{type(model).__qualname__} is not a model of vit_jax or vit_torch")
    write_weights(path, model.cfg, twin_of(framework).to_arrays(model), preprocess)


def twin_of(framework: str) -> Any:
    """The package of a framework's twin: `vit_jax` or `vit_torch`.

    Raises:
        ConfigError: another framework.
    """
    if framework == "jax":
        import vit_jax

        return vit_jax
    if framework == "torch":
        import vit_torch

        return vit_torch
    raise ConfigError(f'framework = {framework!r}; expected "jax" or "torch"')
