"""A small checkpoint of every dialect, and some that transformers itself saves, before any change."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.checkpoint_mutations.changes import rewrite
from evidence.dialect_table import sample as schema_of
from parity.measure.redraw import redraw
from parity.porting.dialects import dialects
from parity.porting.dialects.dialect import Dialect
from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from vit_config import Preprocess, ViTConfig, read_weights, write_weights
from vit_config.errors import UnstatedError
from vit_config.parameters import parameters


class Model(NamedTuple):
    """The result of a conversion."""

    config: ViTConfig
    preprocess: Preprocess | None
    arrays: dict[str, np.ndarray]
    said: frozenset[str]
    """Notes and warnings."""


def outcome(path: Path, out: Path, reading: Mapping[str, Any]) -> Model:
    """Read a checkpoint, load every tensor and convert it to the project's own file."""
    source = read_checkpoint(path, **reading)
    for stored in source.tensors.values():
        stored.load()
    converted = convert(source, to="parity", out=out)
    config, preprocess, arrays = read_weights(out)
    return Model(config, preprocess, arrays, frozenset((*converted.notes, *converted.warnings)))


@dataclass(frozen=True)
class Sample:
    """A checkpoint."""

    name: str
    folder: Path
    weights: str
    """The name of the file with the tensors."""
    entry: str
    """The file that is read, or "" for the folder."""
    signed: bool
    """Whether the file says its schema itself, in a header or a comment of this project."""
    reading: dict[str, Any] = field(default_factory=dict)
    """Options for reading it."""

    @property
    def model(self) -> Model:
        """The result of the unchanged sample."""
        with tempfile.TemporaryDirectory() as folder:
            return outcome(self.folder / self.entry, Path(folder) / "own.safetensors", self.reading)


def samples(folder: Path, only: str = "") -> Iterator[Sample]:
    """Yield samples of every written dialect: as written here, and as its ecosystem writes the same.

    Args:
        only: of the dialects whose names begin so.
    """
    for dialect in dialects():
        if dialect.writes and dialect.name.startswith(only):
            written = write_sample(dialect, folder)
            yield written
            if written.signed:
                yield resaved(written, folder)


def write_sample(dialect: Dialect, folder: Path, *, suffix: str = "") -> Sample:
    """A random model in a dialect.

    Args:
        suffix: of another kind of file than the dialect's own, such as ``.pth``.
    """
    cfg = schema_of(dialect)
    own = folder / f"{dialect.name}.own.safetensors"
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    preprocess = Preprocess(
        mean=(0.4, 0.5, 0.25),
        interpolation="bilinear",
        crop_mode="squash",
        class_names=tuple(f"class {i}" for i in range(cfg.num_classes)) or None,
        license="apache-2.0",
    )
    write_weights(own, cfg, arrays, preprocess)
    inside, weights = folder / f"{dialect.name} {suffix[1:]}".strip(), dialect.weights_name
    convert(own, to=dialect.name, out=inside)
    if suffix:
        (inside / weights).unlink()
        convert(own, to=dialect.name, out=inside / (weights := f"pytorch_model{suffix}"))
    signed, alone = Path(weights).suffix not in (".msgpack", ".h5", ".eqx"), dialect.settings is None
    return Sample(inside.name, inside, weights, weights if alone else "", signed)


def resaved(sample: Sample, folder: Path) -> Sample:
    """The same tensors and config files, the tensors written by the library of their ecosystem."""
    name = f"{sample.name}, resaved"
    shutil.copytree(sample.folder, theirs := folder / name)
    container = open_container(path := theirs / sample.weights)
    rewrite(path, {each: np.array(stored.load()) for each, stored in container.tensors.items()}, None)
    source = read_checkpoint(sample.folder / sample.entry)
    given: dict[str, Any] = {}
    reading = {"dialect": source.dialect.name, "given": given}
    while True:
        try:
            read_checkpoint(theirs / sample.entry, **reading)
        except UnstatedError as error:
            given |= {each: getattr(source.config, each) for each in error.fields}
            continue
        return replace(sample, name=name, folder=theirs, signed=False, reading=reading)


TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", {"intermediate_size": 44}, "ViT"),
    "deit": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", {"intermediate_size": 44}, "DeiT"),
    "beit": ("BeitForImageClassification", "BeitConfig", {"intermediate_size": 44}, "Beit"),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", {"mlp_ratio": 2}, "Bit"),
    "clip": ("CLIPVisionModelWithProjection", "CLIPVisionConfig", {"intermediate_size": 44}, "CLIP"),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", {"intermediate_size": 44}, "Siglip"),
}
"""Its classes of a model, a config, and a processor of images."""


def of_transformers(folder: Path) -> Iterator[Sample]:
    """Yield files that transformers itself saves: config files and safetensors without any digest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.support.hf_models import CLASSES, SQUARE, build, save, transformers

        for name, (model, config, entries, processor) in TRANSFORMERS.items():
            labels = CLASSES if "Classification" in model else {}
            built = build(model, config, **SQUARE, **labels, **entries).float()
            crop = {} if processor in ("ViT", "Siglip", "Beit") else {"crop_size": 15}
            size = {"shortest_edge": 17} if processor in ("Bit", "CLIP") else {"height": 15, "width": 15}
            kind = getattr(transformers, f"{processor}ImageProcessor")
            save(built, folder / f"transformers {name}", kind(size=size, **crop))
            yield Sample(
                f"transformers {name}", folder / f"transformers {name}", "model.safetensors", "", False
            )
