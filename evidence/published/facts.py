"""The published checkpoints, as the files beside this one state them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FULL = ("S", "B")
"""Sizes whose weights are drawn and run; of larger ones names and shapes are all that is made."""


@dataclass(frozen=True)
class Published:
    """One checkpoint and what is known of it."""

    name: str
    library: Literal["transformers", "timm", "torchvision", "open_clip", "file"]
    size: str
    architecture: str = ""
    """Name in timm, torchvision or OpenCLIP; for a bare file that of timm, whose names it has."""
    model_args: dict[str, Any] | None = None
    """Arguments in timm's config.json; None for a tag, for which timm itself has one."""
    code: dict[str, str] = field(default_factory=dict)
    """Arguments of timm's that its page gives in code, as no JSON can say them."""
    kind: str = ""
    """The class of transformers."""
    config: dict[str, Any] = field(default_factory=dict)
    """Entries of transformers' config.json."""
    host: bool = False
    """Whether it is a larger model; what is put back is its tower alone."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of torchvision's function."""
    given: dict[str, Any] = field(default_factory=dict)
    """Fields that no file says and the user has to."""
    override: dict[str, Any] = field(default_factory=dict)
    """Statements of its page against its config.json."""
    part: str = ""
    """The model that is taken from a file that has several."""
    wrapper: str = ""
    """Prefix of the names in a bare file."""
    decoder: dict[str, int] = field(default_factory=dict)
    """The decoder beside the encoder of a masked autoencoder."""
    changes: dict[str, list[int]] = field(default_factory=dict)
    """Tensors of a bare file that have another shape than timm's."""

    @property
    def full(self) -> bool:
        """Whether it is run."""
        return self.size in FULL and not self.host and not self.changes


def published() -> dict[str, Published]:
    """Every checkpoint, by name."""
    here = Path(__file__).parent
    every = [
        *(_of_transformers(*each) for each in _read(here / "transformers.toml")),
        *(Published(name, "timm", **facts) for name, facts in _read(here / "timm.toml")),
        *(Published(name, **facts) for name, facts in _read(here / "others.toml")),
    ]
    return {each.name: each for each in every}


def _read(path: Path) -> list[tuple[str, dict[str, Any]]]:
    return [*tomllib.loads(path.read_text(encoding="utf-8")).items()]


def _of_transformers(name: str, facts: dict[str, Any]) -> Published:
    """Towers are under vision_config; of labels nothing but their number matters."""
    config = {"architectures": [facts["class"]], **facts["config"]}
    if "vision" in facts:
        config |= {"vision_config": facts["vision"], "text_config": {}}
    if labels := facts.get("labels"):
        config["id2label"] = {str(index): f"class {index}" for index in range(labels)}
    return Published(
        name, "transformers", facts["size"], kind=facts["class"], config=config,
        host=facts.get("host", False), part=facts.get("part", ""),
    )  # fmt: skip
