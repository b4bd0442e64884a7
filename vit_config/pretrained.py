"""Folders and the Hub as methods of a model, by the conventions of huggingface_hub's `ModelHubMixin`.

The twins know one kind of file, their own. Every other dialect is known to `parity`, which stands above
them: it is looked up by name when one of these methods is called, here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Self

from vit_config.images.preprocess import Preprocess

ABOVE = "parity.porting.pretrained"
"""The module with the functions that these methods call."""


@dataclass(frozen=True)
class About:
    """What is known of a model's weights beside the schema; goes wherever they go."""

    preprocess: Preprocess | None = None
    """How images are prepared, what classes are called, the licence; None where nobody says."""
    provenance: str = "[]"
    """The files that the weights came through, oldest first: JSON, as a weights file's header has it."""

    def with_another_head(self) -> About:
        """The same of a model whose classes are others."""
        return replace(self, preprocess=self.preprocess and self.preprocess.replace(class_names=None))

    def of_another_size(self) -> About:
        """The same of a model that takes images of another size."""
        return replace(self, preprocess=self.preprocess and self.preprocess.replace(image_size=None))


class Pretrained:
    """Methods that read and write what other libraries read and write, as a part of the model."""

    about: About = About()

    @classmethod
    def from_pretrained(cls, source: Any, **options: Any) -> Self:
        """A model from a folder, a file or a repository of the Hub, see `parity.from_pretrained`."""
        return import_module(ABOVE).from_pretrained(source, framework=_framework(cls), **options)

    def save_pretrained(self, folder: Any, **options: Any) -> Any:
        """Write a folder that timm or transformers opens, see `parity.save_pretrained`."""
        return import_module(ABOVE).save_pretrained(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Write such a folder to the Hub, see `parity.push_to_hub`."""
        return import_module(ABOVE).push_to_hub(self, repo_id, **options)


def _framework(model: type) -> str:
    """``jax`` of vit_jax, ``torch`` of vit_torch."""
    return model.__module__.partition(".")[0].removeprefix("vit_")
