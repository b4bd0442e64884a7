"""An opened checkpoint: its tensors, not read yet, and its header and config files, each parsed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from parity.porting.dialects import dialects
from parity.porting.dialects.sidecars import Sidecars
from parity.porting.formats import Container, open_container
from parity.porting.formats.metadata import PREPROCESS, Metadata
from parity.porting.formats.weights_folder import SIDECARS, TOKENIZER
from parity.porting.opening import hub
from parity.porting.opening.provenance import Hop, from_header
from vit_config import TextConfig, ViTConfig

TEXT, BRANCH = "vit.text", "vit.branch"
"""Keys of the text tower's schema, and of the image tower's place in a file."""


@dataclass(frozen=True)
class OwnHeader:
    """The entries that this project wrote into a file's header; empty for other files.

    Each entry is parsed on first use, so an entry that is not used may be damaged.
    """

    entries: dict[str, str]
    path: Path
    classes: int | None = None
    """See `Opened`."""

    @property
    def dialect(self) -> str | None:
        """Name of the file's dialect."""
        return self.entries.get("vit.dialect")

    @property
    def branch(self) -> str:
        """Prefix of the model's tensors in the file; empty if there is none."""
        return self.entries.get(BRANCH, "")

    @cached_property
    def text(self) -> TextConfig | None:
        """Schema of the text tower beside the model. ConfigError: the entry is not valid."""
        text = self.entries.get(TEXT)
        return None if text is None else TextConfig.from_json(text, where=f"{self.path}: {TEXT}")

    @property
    def has_metadata(self) -> bool:
        """Whether the header states the preprocessing, or that it is unknown."""
        return PREPROCESS in self.entries

    @cached_property
    def schema(self) -> ViTConfig | None:
        """Schema of the model. ConfigError: the entry is not valid."""
        text = self.entries.get("vit.schema")
        cfg = None if text is None else ViTConfig.from_json(text, where=f"{self.path}: vit.schema")
        return cfg if cfg is None or self.classes is None else cfg.replace(num_classes=self.classes)

    @cached_property
    def metadata(self) -> Metadata | None:
        """Preprocessing, class names and licence. ConfigError: an entry is not valid."""
        metadata = Metadata.from_header(self.entries, where=str(self.path))
        if metadata is None or self.classes is None:
            return metadata
        return metadata.replace(class_names=None)

    @cached_property
    def hops(self) -> tuple[Hop, ...]:
        """Provenance of the weights. WeightsError: the entry is not a list of hops."""
        return from_header(self.entries, str(self.path))


class Live(NamedTuple):
    """A model in memory whose modules state its schema; its config only says what it was built from."""

    model: Any
    facts: Mapping[str, Any]
    """Fields of the schema that the modules state."""
    check: Callable[[Any], None]
    """Refuses the checkpoint that was read of it if that is another function."""


@dataclass(frozen=True)
class Opened:
    """The files of a checkpoint; made by `open_checkpoint`."""

    container: Container
    name: str
    """Name of the file; for a download from the Hub, the repository and the commit."""
    preset: str | None = None
    """The weights' preset, if a ``timm:`` name says it."""
    live: Live | None = None
    """A model in memory that states its own schema; None of a file."""
    classes: int | None = None
    """Number of classes of a head that an adapter brought, of which header and config files do not know;
    None if they know the head."""

    @property
    def path(self) -> Path:
        """The file or folder."""
        return self.container.path

    @property
    def files(self) -> tuple[Path, ...]:
        """The path that was opened, and every file that is read; of a model in memory its name alone."""
        folder = self.path if self.path.is_dir() else self.path.parent
        beside = [folder / name for name in (*SIDECARS, *TOKENIZER)] if self.container.files else []
        return (self.path, *self.container.files, *(each for each in beside if each.is_file()))

    @cached_property
    def header(self) -> OwnHeader:
        """The entries that this project wrote into the file's header."""
        return OwnHeader(self.container.metadata, self.path, self.classes)

    @property
    def sidecars(self) -> Sidecars:
        """The config files beside the weights; those of a larger model reduced to its vision tower."""
        return self._tower[0]

    @property
    def tower(self) -> str:
        """A note that the config files describe a larger model with a Vision Transformer inside; else
        empty."""
        return self._tower[1]

    @cached_property
    def _tower(self) -> tuple[Sidecars, str]:
        return Sidecars(self.container.sidecars, classes=self.classes).of_tower(dialects())


def open_checkpoint(source: str | Path, **downloading: Any) -> Opened:
    """Open a checkpoint: a file or folder, or a name on the Hub, see `parity.porting.opening.hub`.

    Args:
        downloading: how a name is downloaded, see `parity.porting.opening.hub.locate`.

    Raises:
        MissingFileError: there is no such file or repository.
        WeightsError: the file is damaged, or of an unknown kind.
        ConfigError: the name is malformed, or timm has no such weights on the Hub.
    """
    located = hub.locate(source, **downloading)
    return Opened(open_container(located.path), located.name, located.preset)
