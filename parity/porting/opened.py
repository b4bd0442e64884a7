"""A checkpoint that was opened: tensors unread, and what its files state, each of them parsed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from parity.porting import hub
from parity.porting.dialects import dialects
from parity.porting.dialects.sidecars import Sidecars
from parity.porting.formats import Container, open_container
from parity.porting.metadata import PREPROCESS, Metadata
from parity.porting.provenance import Hop, from_header
from vit_config import ViTConfig


@dataclass(frozen=True)
class Header:
    """What this project wrote into a file's header; of anybody else's file there is nothing in it.

    Each entry is parsed when it is first asked for: what nobody asks for may be damaged.
    """

    entries: dict[str, str]
    path: Path

    @property
    def dialect(self) -> str | None:
        """The name of the dialect in which the file was written."""
        return self.entries.get("vit.dialect")

    @property
    def has_metadata(self) -> bool:
        """Whether it says how pixels are prepared, or that nobody knows."""
        return PREPROCESS in self.entries

    @cached_property
    def schema(self) -> ViTConfig | None:
        """The model. ConfigError: the entry is not valid."""
        text = self.entries.get("vit.schema")
        return None if text is None else ViTConfig.from_json(text, where=f"{self.path}: vit.schema")

    @cached_property
    def metadata(self) -> Metadata | None:
        """Pixels, names of classes and licence. ConfigError: an entry that is not valid."""
        return Metadata.from_header(self.entries, where=str(self.path))

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        """The files that the weights came through. WeightsError: the entry is not a list of them."""
        return from_header(self.entries, str(self.path))


@dataclass(frozen=True)
class Opened:
    """The files of a checkpoint; made by `open_checkpoint`."""

    container: Container
    name: str
    """The file's name; of what was found on the Hub, the repository and the commit."""
    preset: str | None = None
    """The preset that the weights are of, where a ``timm:`` name says it."""

    @property
    def path(self) -> Path:
        """The file or folder."""
        return self.container.path

    @cached_property
    def header(self) -> Header:
        """What this project wrote into the file."""
        return Header(self.container.metadata, self.path)

    @property
    def sidecars(self) -> Sidecars:
        """The config files beside it; of a larger model those of its Vision Transformer."""
        return self._tower[0]

    @property
    def tower(self) -> str:
        """Which part of a larger model they are of, in words; empty where they are as they came."""
        return self._tower[1]

    @cached_property
    def _tower(self) -> tuple[Sidecars, str]:
        return Sidecars(self.container.sidecars).of_tower(dialects())


def open_checkpoint(source: str | Path, **downloading: Any) -> Opened:
    """Open a checkpoint: a file or folder, or a name on the Hub, see `parity.porting.hub`.

    Args:
        downloading: how a name is downloaded, see `parity.porting.hub.locate`.

    Raises:
        MissingFileError: there is no such file, or nothing of that name.
        WeightsError: damaged, or of a kind that is not read.
        ConfigError: a name that the Hub does not have.
    """
    located = hub.locate(source, **downloading)
    return Opened(open_container(located.path), located.name, located.preset)
