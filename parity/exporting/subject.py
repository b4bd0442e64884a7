"""The model to export: its schema and weights, its metadata and provenance, its inputs and outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from parity.exporting.pixels import FILTERS
from parity.porting.dialects.rewrites import ModelState
from parity.porting.dialects.transform import as_type, resize_model
from parity.porting.formats.base import Stored
from parity.porting.formats.metadata import Metadata
from parity.porting.models.files import twin_of
from parity.porting.opening.provenance import digest_of_source, to_json, versions
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.text.read import beside_texts, read_text
from parity.porting.text.texts import load_texts
from parity.porting.text.tokens import Tokens, read_tokens
from vit_config import ConfigError, InputError, Preprocess, TextConfig, ViTConfig

Input = Literal["uint8", "float32", "tokens"]
"""Input of a program: pictures of any size, images that are resized and normalised already, or token
ids of texts."""
DType = Literal["float32", "float16", "bfloat16", "int8"]
"""Type of the weights and of the computation; outputs are float32. int8: the products of ONNX Runtime's
dynamic quantisation, all else in float32."""
IMAGE_EMBEDS, TEXT_EMBEDS = "image_embeds", "text_embeds"
"""Outputs that are compared with each other, by transformers' names."""


@dataclass(frozen=True)
class Labels:
    """Classes in words, as the last layer of an image tower that has a text tower beside it."""

    names: tuple[str, ...]
    texts: tuple[str, ...]
    directions: np.ndarray
    """(E, T) float32: the texts' embeddings at length 1, times the factor of cosines."""
    bias: float
    """What is added to each logit."""

    def logits(self, xp: Any, images: Any) -> Any:
        """Compare embeddings of images (B, E), in float32 or float64, with the texts: (B, T).

        Args:
            xp: `numpy`, `jax.numpy` or `torch`.
        """
        length = xp.sqrt((images * images).sum(-1))[:, None]
        return images / length @ xp.asarray(self.directions, dtype=images.dtype) + self.bias


@dataclass(frozen=True)
class Subject:
    """A model to export, and the kind of images that its program takes."""

    config: ViTConfig | TextConfig
    arrays: dict[str, np.ndarray]
    """Parameters by the twins' names, all of one type."""
    dtype: str
    """Type in which the twins compute it."""
    metadata: Metadata
    provenance: list[Any]
    """Hops of the weights, oldest first, as JSON values."""
    input: Input
    labels: Labels | None = None
    tokens: Tokens | None = None
    """How the tokenizer beside a text tower brings texts to one length, where there is one."""
    int8: bool = False
    """Whether ONNX Runtime quantises the products of the float32 program."""
    embeds: bool = False
    """Whether what the image tower returns is compared with texts: it was trained beside their tower."""
    batch: int | None = None
    """Number of images or texts of each call; None leaves it open."""
    files: tuple[Path, ...] = ()
    """The files that were read; none of a model in memory."""

    @property
    def inside(self) -> Preprocess | None:
        """The preprocessing that the program does itself; None if it is left to the caller."""
        return self.metadata.pixels if self.input == "uint8" else None

    @property
    def input_name(self) -> str:
        """Name of the program's input, as people expect it."""
        return "input_ids" if isinstance(self.config, TextConfig) else "images"

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that the model itself sees."""
        assert isinstance(self.config, ViTConfig)
        pixels = self.metadata.pixels
        return (pixels and pixels.image_size) or self.config.image_size

    @property
    def length(self) -> int:
        """Number of tokens of each text."""
        assert isinstance(self.config, TextConfig)
        return self.tokens.length if self.tokens else self.config.context_length

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs; no logits where they would equal the pooled output."""
        return tuple(self.shapes())

    def shapes(self) -> dict[str, list[Any]]:
        """Return the shape of each output; B is a batch size that is left open."""
        return {self._called.get(name, name): shape for name, shape in self._own_shapes().items()}

    @property
    def _called(self) -> dict[str, str]:
        """The names of outputs that are not the twins' own."""
        if isinstance(self.config, TextConfig):
            return {"embeddings": TEXT_EMBEDS}
        return {next(iter(self._own_shapes())): IMAGE_EMBEDS} if self.embeds and not self.labels else {}

    def _own_shapes(self) -> dict[str, list[Any]]:
        cfg, B = self.config, self.batch or "B"
        if isinstance(cfg, TextConfig):
            D, E = cfg.hidden_size, cfg.projection_dim or cfg.hidden_size
            return {"embeddings": [B, E], "pooled": [B, D], "tokens": [B, self.length, D]}
        rows, columns = cfg.grid_of(*self.image_size)
        every: dict[str, list[Any]] = {
            "logits": [B, len(self.labels.names) if self.labels else cfg.num_logits],
            "pooled": [B, cfg.head_inputs],
            "tokens": [B, cfg.num_prefix_tokens + rows * columns, cfg.hidden_size],
        }
        if not (self.labels or cfg.num_classes or cfg.head_hidden):
            del every["logits"]
        return every

    def model(self, twin: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        """Build the model in one twin, `vit_jax` or `vit_torch`."""
        text = isinstance(self.config, TextConfig)
        return (twin.text_from_arrays if text else twin.from_arrays)(self.config, arrays)

    def named(self, xp: Any, output: Any) -> dict[str, Any]:
        """Return what a model's call returned as the program's outputs, by their names.

        Args:
            xp: `numpy`, `jax.numpy` or `torch`, whose arrays they are; float32 or float64 with `labels`.
        """
        own = self._own_shapes()
        if isinstance(self.config, TextConfig):
            every = {name: getattr(output, name) for name in own}
        else:
            concatenate = getattr(
                xp, "cat", xp.concatenate
            )  # torch's other name is an operator few know
            tokens = concatenate([output.prefix_tokens, output.patch_tokens], 1)
            every = {"logits": output.logits, "pooled": output.pooled, "tokens": tokens}
        if self.labels:
            every["logits"] = self.labels.logits(xp, output.logits)
        return {self._called.get(name, name): every[name] for name in own}


def subject_of(
    source: Any,
    *,
    input: Input,
    dtype: str | None = None,
    labels: Sequence[str] = (),
    template: str = "{}",
    image_size: tuple[int, int] | int | None = None,
    batch: int | None = None,
    **reading: Any,
) -> Subject:
    """Prepare a checkpoint, or a model in memory, for export.

    Args:
        image_size: height and width in pixels, or one number for both, to which positions are resampled;
            None keeps the model's.
        batch: see `Subject`.

    Raises:
        ConfigError: an unknown type or kind of input, a size that the model cannot have, or a checkpoint
            that cannot be read as stated.
        InputError: `input` is ``uint8``, and the preprocessing is unknown; or there is no text tower.
        MissingFileError, WeightsError: see `read_checkpoint`.
    """
    _among("input", input, get_args(Input))
    if dtype is not None:
        _among("dtype", dtype, get_args(DType))
    if batch is not None and batch < 1:
        raise ConfigError(f"batch = {batch} (--batch {batch}): expected at least 1, or None (dynamic)")
    read = _read(source, input, labels, template, reading)
    read, said = _sized(read, image_size)
    if input == "uint8" and read.metadata.pixels is None:
        raise InputError(
            f"{read.where}: nobody says how images are prepared, so it cannot be a part of the program;"
            " state it with preprocess (--preprocess FILE), or leave it to the caller with"
            " input = float32 (--input float32)"
        )
    pixels = read.metadata.pixels
    if input == "uint8" and pixels and pixels.pixel_type != "uint8":
        raise InputError(
            f"{read.where}: pixels are {pixels.pixel_type}, and a program with preprocessing takes"
            " uint8; leave it to the caller with input = float32 (--input float32)"
        )
    if input == "uint8" and pixels and pixels.interpolation not in FILTERS:
        raise ConfigError(
            f"{read.where}: interpolation = {pixels.interpolation!r} cannot be a part of a program, only"
            f" {', '.join(FILTERS)}; leave it to the caller with input = float32 (--input float32)"
        )
    if input == "uint8" and pixels and (most := pixels.max_patches):
        raise ConfigError(
            f"{read.where}: max_patches = {most} gives each image a size of its own, which no program"
            " of one size can; leave it to the caller with input = float32 (--input float32)"
        )
    have = str(next(iter(read.arrays.values())).dtype)
    weights_type = ("float32" if dtype == "int8" else dtype) or have
    if weights_type not in get_args(DType):
        raise ConfigError(
            f"{read.where}: the weights are {have}; give dtype = float32 (--dtype float32)"
        )
    state = as_type(ModelState(read.config, read.arrays, ()), weights_type)  # type: ignore[arg-type]
    hops = list(read.provenance)
    if done := [*said, *state.said]:
        hops.append({"done": done, "versions": versions()})
    loaded = {name: each.load() for name, each in state.arrays.items()}
    return Subject(
        read.config, loaded, weights_type, read.metadata, hops, input, read.labels, read.tokens,
        int8=dtype == "int8", files=read.files, embeds=read.embeds, batch=batch,
    )  # fmt: skip


class _Read(NamedTuple):
    where: Any
    config: ViTConfig | TextConfig
    arrays: dict[str, Stored]
    metadata: Metadata
    provenance: list[Any]
    labels: Labels | None = None
    tokens: Tokens | None = None
    files: tuple[Path, ...] = ()
    embeds: bool = False


def _sized(read: _Read, image_size: tuple[int, int] | int | None) -> tuple[_Read, tuple[str, ...]]:
    """Resample the positions of a model to another image size, and say so."""
    if image_size is None:
        return read, ()
    if isinstance(read.config, TextConfig):
        raise ConfigError("image_size (--image-size) is of images, and input = tokens of texts")
    state = resize_model(ModelState(read.config, read.arrays, ()), image_size)
    pixels = read.metadata.pixels
    metadata = read.metadata.replace(pixels=pixels and pixels.replace(image_size=None))
    return read._replace(config=state.config, arrays=state.arrays, metadata=metadata), state.said


def _read(
    source: Any, input: Input, labels: Sequence[str], template: str, reading: dict[str, Any]
) -> _Read:
    """Read a checkpoint, its text tower, or a twin's model."""
    package = type(source).__module__.partition(".")[0]
    if package in ("vit_jax", "vit_torch") and isinstance(getattr(source, "cfg", None), ViTConfig):
        if reading or labels or input == "tokens":
            raise ConfigError(
                f"{type(source).__qualname__}: a twin's model is exported as it is; give its checkpoint"
                " for texts, or with what is said of files"
            )
        stored = {
            n: Stored.of(each)
            for n, each in twin_of(package.removeprefix("vit_")).to_arrays(source).items()
        }
        provenance = json.loads(source.about.provenance)
        metadata = Metadata.of(source.about.preprocess)
        return _Read(type(source).__qualname__, source.cfg, stored, metadata, provenance)
    checkpoint = read_checkpoint(source, **reading)
    where, metadata = checkpoint.path, checkpoint.metadata
    files = checkpoint.files if checkpoint.container.files else ()
    hops = [*checkpoint.hops, checkpoint.hop(digest_of_source(checkpoint.container))]
    provenance = json.loads(to_json(hops))
    if input == "tokens":
        if labels:
            raise ConfigError("labels go with images, and input = tokens (--input tokens) is of texts")
        text = read_text(checkpoint)
        tokens = None
        with suppress(InputError):  # no tokenizer beside it: ids are what the caller has
            cleaned = text.dialect.cleans(checkpoint.container.sidecars)
            tokens = read_tokens(checkpoint.path, text.config, cleaned)
        return _Read(where, text.config, text.arrays, metadata, provenance, tokens=tokens, files=files)
    compared = _labels(checkpoint, labels, template) if labels else None
    return _Read(
        where, checkpoint.config, checkpoint.arrays, metadata, provenance, compared, files=files,
        embeds=beside_texts(checkpoint) and not metadata.class_names,
    )  # fmt: skip


def _labels(checkpoint: Checkpoint, names: Sequence[str], template: str) -> Labels:
    """Embed classes in words by the text tower beside an image tower."""
    sentences = [template.replace("{}", each) for each in names]
    framework = "torch" if find_spec("torch") else "jax"
    texts = load_texts(checkpoint, framework=framework)
    embedded = texts.embed(sentences).astype(np.float64)
    arrays = twin_of(framework).to_arrays(texts.model)
    scale = np.exp(np.float64(arrays["logit_scale"])) if "logit_scale" in arrays else 1.0
    directions = (scale * embedded / np.linalg.norm(embedded, axis=1, keepdims=True)).T
    bias = float(arrays["logit_bias"]) if "logit_bias" in arrays else 0.0
    return Labels(tuple(names), tuple(sentences), directions.astype(np.float32), bias)


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} = {value!r}: expected one of {', '.join(known)}")
