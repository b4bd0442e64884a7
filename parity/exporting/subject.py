"""The model to export: its schema and weights, its metadata and provenance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from parity.exporting.pixels import FILTERS
from parity.porting.checkpoint import read_checkpoint
from parity.porting.dialects.rewrites import State
from parity.porting.files import twin_of
from parity.porting.formats.base import Stored
from parity.porting.metadata import Metadata
from parity.porting.opened import Opened
from parity.porting.provenance import digest_of, to_json, versions
from parity.porting.transform import as_type
from vit_config import ConfigError, InputError, Preprocess, ViTConfig

Input = Literal["uint8", "float32"]
"""Input of a program: pictures of any size, or images that are resized and normalised already."""
DType = Literal["float32", "float16", "bfloat16"]
"""Type of the weights and of the computation; outputs are float32."""


@dataclass(frozen=True)
class Subject:
    """A model to export, and the kind of images that its program takes."""

    config: ViTConfig
    arrays: dict[str, np.ndarray]
    """Parameters by the twins' names, all of one type."""
    dtype: str
    metadata: Metadata
    provenance: list[Any]
    """Hops of the weights, oldest first, as JSON values."""
    input: Input

    @property
    def inside(self) -> Preprocess | None:
        """The preprocessing that the program does itself; None if it is left to the caller."""
        return self.metadata.pixels if self.input == "uint8" else None

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that the model itself sees."""
        told = self.metadata.pixels
        return (told and told.image_size) or self.config.image_size

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs; no logits where they would equal the pooled output."""
        own = self.config.num_classes or self.config.head_hidden
        return ("logits", "pooled", "tokens") if own else ("pooled", "tokens")

    def shapes(self) -> dict[str, list[Any]]:
        """Return the shape of each output; B is the batch size."""
        cfg, (height, width) = self.config, self.image_size
        rows, columns = cfg.grid_of(height, width)
        every: dict[str, list[Any]] = {
            "logits": ["B", cfg.num_logits],
            "pooled": ["B", cfg.head_inputs],
            "tokens": ["B", cfg.num_prefix_tokens + rows * columns, cfg.hidden_size],
        }
        return {name: every[name] for name in self.outputs}


def subject_of(source: Any, *, input: Input, dtype: str | None, **reading: Any) -> Subject:
    """Prepare a checkpoint, or a model of either twin, for export.

    Raises:
        ConfigError: an unknown type or kind of input, or a checkpoint that cannot be read as stated.
        InputError: `input` is ``uint8``, and the preprocessing is unknown.
        MissingFileError, WeightsError: see `read_checkpoint`.
    """
    _among("input", input, get_args(Input))
    if dtype is not None:
        _among("dtype", dtype, get_args(DType))
    if isinstance(source, str | Path | Opened):
        checkpoint = read_checkpoint(source, **reading)
        where, cfg, stored = checkpoint.path, checkpoint.config, checkpoint.arrays
        metadata = checkpoint.metadata
        hops = [*checkpoint.hops, checkpoint.hop(digest_of(checkpoint.container.files))]
        provenance = json.loads(to_json(hops))
    else:
        if not hasattr(source, "cfg") or reading:
            raise ConfigError(f"{type(source).__qualname__}: give a checkpoint, or a model of vit_jax or"
                              " vit_torch without what is said of files")  # fmt: skip
        framework = type(source).__module__.partition(".")[0].removeprefix("vit_")
        where, cfg = type(source).__qualname__, source.cfg
        arrays = twin_of(framework).to_arrays(source)
        stored = {name: Stored.of(each) for name, each in arrays.items()}
        metadata = Metadata.of(source.about.preprocess)
        provenance = json.loads(source.about.provenance)
    if input == "uint8" and metadata.pixels is None:
        raise InputError(
            f"{where}: nobody says how images are prepared, so it cannot be a part of the program;"
            " state it with preprocess (--preprocess FILE), or leave it to the caller with"
            " input = float32 (--input float32)"
        )
    if input == "uint8" and metadata.pixels and metadata.pixels.pixel_type != "uint8":
        raise InputError(
            f"{where}: pixels are {metadata.pixels.pixel_type}, and a program with preprocessing takes"
            " uint8; leave it to the caller with input = float32 (--input float32)"
        )
    if input == "uint8" and metadata.pixels and metadata.pixels.interpolation not in FILTERS:
        raise ConfigError(
            f"{where}: interpolation = {metadata.pixels.interpolation!r} cannot be a part of a program,"
            f" only {', '.join(FILTERS)}; leave it to the caller with input = float32 (--input float32)"
        )
    have = str(next(iter(stored.values())).dtype)
    kept = dtype or have
    if kept not in get_args(DType):
        raise ConfigError(f"{where}: the weights are {have}; give dtype = float32 (--dtype float32)")
    state = as_type(State(cfg, stored, ()), kept)
    if state.said:
        provenance.append({"done": list(state.said), "versions": versions()})
    loaded = {name: each.load() for name, each in state.arrays.items()}
    return Subject(cfg, loaded, kept, metadata, provenance, input)


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} = {value!r}: expected one of {', '.join(known)}")
