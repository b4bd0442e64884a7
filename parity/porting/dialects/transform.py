"""Changes that a conversion can make to a model: type, image size, head."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from parity.porting.dialects.rewrites import ModelState
from parity.porting.dialects.transfer import change_when_read
from parity.porting.formats.base import Stored
from vit_config import ConfigError
from vit_config.numerics.resize import resize_weights
from vit_config.parameters import parameters

DTYPES = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


def resize_model(state: ModelState, image_size: tuple[int, int] | int) -> ModelState:
    """Return the model for another image size, its positions resampled by the schema's rule.

    Raises:
        ConfigError: the patch size does not divide the image size.
    """
    cfg = state.config
    new = cfg.replace(image_size=image_size)  # one number stands for both sides, as everywhere
    image_size = new.image_size
    if image_size == cfg.image_size:
        return state
    shapes = {name: each.shape for name, each in parameters(new).items()}

    def fit(name: str, stored: Stored) -> Stored:
        if stored.shape == shapes[name] and (cfg.grid == new.grid or not _depends_on_grid(name)):
            return stored
        return change_when_read(
            stored,
            lambda array: resize_weights(cfg, {name: array}, image_size=image_size)[1][name],
            shapes[name],
        )

    note = "image size {}x{} to {}x{}".format(*cfg.image_size, *image_size)
    if cfg.grid != new.grid and any(_depends_on_grid(name) for name in state.arrays):
        note += f", positions fitted by {cfg.pos_embed_resize}"
    arrays = {name: fit(name, stored) for name, stored in state.arrays.items()}
    return ModelState(new, arrays, (*state.said, note))


def _depends_on_grid(name: str) -> bool:
    return name == "pos_embed" or name.endswith("rel_pos_bias.table")


def with_classes(state: ModelState, num_classes: int) -> ModelState:
    """Return the model with another number of classes.

    0 removes the head, with its hidden layer, which other libraries call a pooler; another number puts a
    head of zeros on.

    Raises:
        ConfigError: a negative number.
    """
    cfg = state.config
    if num_classes < 0:
        raise ConfigError(f"num_classes = {num_classes}: must not be negative")
    if num_classes == 0:
        return _without_head(state)
    if num_classes == cfg.num_classes:
        return state
    new = cfg.replace(num_classes=num_classes)
    dtype = next(iter(state.arrays.values())).dtype
    zeros = {
        name: Stored(each.shape, dtype, lambda shape=each.shape: np.zeros(shape, dtype))
        for name, each in parameters(new).items()
        if name.startswith("head")
    }
    note = f"head of {cfg.num_classes} classes replaced by one of {num_classes}, all zero: train it"
    return state.rewritten(note, {"num_classes": num_classes}, zeros)


def _without_head(state: ModelState) -> ModelState:
    cfg = state.config
    changes: dict[str, Any] = {}
    notes = []
    if cfg.num_classes:
        changes |= {"num_classes": 0, "head_bias": True}
        notes.append(f"head of {cfg.num_classes} classes taken off")
    if cfg.head_hidden:
        changes["head_hidden"] = None
        notes.append(f"tanh layer of {cfg.head_hidden} (pooler, pre_logits) taken off")
    if cfg.pool == "class_mean":  # no library pools so without a head
        changes["pool"] = "class"
        notes.append(
            "pooled is the class token alone, which the head saw beside the mean of the patches"
        )
    return state.rewritten("; ".join(notes), changes, {}) if notes else state


def as_type(state: ModelState, name: str) -> ModelState:
    """Return the model with all tensors cast to one type; a narrower one rounds.

    Raises:
        ConfigError: an unknown type.
    """
    if name not in DTYPES:
        raise ConfigError(f"dtype {name!r}: expected one of {', '.join(DTYPES)}")
    before = {str(stored.dtype) for stored in state.arrays.values()}
    if before == {name}:
        return state
    arrays = {n: _checked(n, stored, DTYPES[name]) for n, stored in state.arrays.items()}
    return ModelState(
        state.config, arrays, (*state.said, f"{', '.join(sorted(before))} rounded to {name}")
    )


def _checked(name: str, stored: Stored, dtype: np.dtype) -> Stored:
    """Cast a tensor; reading it raises a ConfigError if a finite value becomes infinite."""

    def load() -> np.ndarray:
        array = stored.load()
        with np.errstate(over="ignore"):
            new = array.astype(dtype)
        over = np.isfinite(array) & ~np.isfinite(new)
        if over.any():
            raise ConfigError(f"{name}: {array[over][0]} does not fit into {dtype}; choose a wider type")
        return new

    return stored if stored.dtype == dtype else Stored(stored.shape, dtype, load)
