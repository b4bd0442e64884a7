"""Adds the text tower to the files that a conversion of the image tower writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from parity.porting.dialects.dialect import Dialect
from parity.porting.dialects.table import Bound, bind_ours
from parity.porting.dialects.transfer import cast, write
from parity.porting.formats.base import Stored
from parity.porting.opening.opened import BRANCH, TEXT
from parity.porting.reading.anomalies import refuse_not_finite
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.text.dialect import Contents, TextDialect
from parity.porting.text.dialects import DIALECTS
from parity.porting.text.read import TextCheckpoint, read_text
from vit_config import ConfigError, TextConfig, ViTConfig, WeightsError


@dataclass(frozen=True)
class TextTarget:
    """The text tower that a conversion will write beside an image tower."""

    dialect: TextDialect
    config: TextConfig
    arrays: dict[str, Stored]
    """Its parameters by the twins' names, in the type that is written."""
    read: frozenset[str]
    """Names of the tensors that it was read from, as its dialect places them."""
    tensors: dict[str, Stored]
    """The tensors of both towers by the names of the file."""

    @property
    def header(self) -> dict[str, str]:
        """Entries of the file's header."""
        branch = self.dialect.image_prefix.removesuffix("/") if self.dialect.sibling else ""
        return {TEXT: self.config.to_json(), **({BRANCH: branch} if branch else {})}

    def files(self, files: Contents, image: ViTConfig) -> Contents:
        """Return the config files of both towers, given those of the image tower."""
        return self.dialect.files(files, self.config, image)

    def compare(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that does not read back as this tower. WeightsError: it does not."""
        stated = {name: getattr(self.config, name) for name in self.config.fields()}
        tower = read_text(checkpoint, fill=stated)
        for name, value in stated.items():
            if (read := getattr(tower.config, name)) != value:
                origin = tower.origins[name]
                raise WeightsError(f"text.{name} = {read} ({origin}), but {value} was written")
        for name, stored in self.arrays.items():
            other = tower.arrays[name]
            if (other.shape, other.dtype) != (stored.shape, stored.dtype):
                raise WeightsError(
                    f"text.{name} has shape {other.shape}, but {stored.shape} was written"
                )


def plan_text(
    source: Checkpoint,
    image: ViTConfig,
    tensors: Mapping[str, Stored],
    dialect: Dialect,
    dtype: np.dtype,
    *,
    allow_nonfinite: bool = False,
) -> TextTarget:
    """Plan the text tower that is written beside an image tower.

    Args:
        image: the image tower that is written.
        tensors: its tensors by the names of its dialect.
        dtype: type of all tensors.

    Raises:
        ConfigError: the dialect cannot hold the text tower, with the reasons.
        InputError, WeightsError, ConfigError: see `parity.porting.text.read.read_text`.
    """
    read = read_text(source)
    if (width := read.config.projection_dim or read.config.hidden_size) != image.num_logits:
        raise ConfigError(
            f"texts are embedded in {width} numbers and images in {image.num_logits}, so they cannot be"
            " compared; leave --text or --num-classes out"
        )
    arrays = read.arrays if allow_nonfinite else refuse_not_finite(read.arrays, source.path)
    arrays = {name: cast(stored, dtype) for name, stored in arrays.items()}
    target = _target(read, image, dialect)
    encoder = read.config.encoder
    text = write(_bound(target, read.config, arrays), arrays, encoder)
    text |= {name: Stored.of(value) for name, value in target.extra(read.config).items()}
    own = (target.image_prefix, *dialect.beside)
    both = {
        name if name.startswith(own) else f"{target.image_prefix}{name}": t
        for name, t in tensors.items()
    }
    both |= {f"{target.text_prefix}{name}": stored for name, stored in text.items()}
    return TextTarget(target, read.config, arrays, frozenset(read.tensors), both)


def _target(read: TextCheckpoint, image: ViTConfig, dialect: Dialect) -> TextDialect:
    able = [each for each in DIALECTS if dialect.name in each.beside]
    if not able:
        raise ConfigError(f"{dialect.name} has no place for a text tower; leave --text out")
    reasons = {each.name: "; ".join(_problems(each, read.config, image)) for each in able}
    for each in able:
        if not reasons[each.name]:
            return each
    raise ConfigError(f"{able[0].name} cannot hold this text tower: {reasons[able[0].name]}")


def _problems(dialect: TextDialect, cfg: TextConfig, image: ViTConfig) -> list[str]:
    problems = list(dialect.limits(cfg))
    quick = "quick_gelu"
    if dialect.name.startswith("open-clip") and (cfg.act == quick) != (image.act == quick):
        problems.append(f"act = {quick} is of both towers or of none ({cfg.act}, {image.act})")
    return problems


def _bound(dialect: TextDialect, cfg: TextConfig, names: Mapping[str, Stored]) -> list[Bound]:
    left: list[str] = []
    for table in dialect.tables:
        bound, left = bind_ours(table, cfg.encoder, names)
        if not left:
            return bound
    raise ConfigError(f"{dialect.name} has no place for text.{', text.'.join(left[:6])}")
