"""Folders and the Hub as methods of a model, by the conventions of huggingface_hub's `ModelHubMixin`.

The twins know one kind of file, their own. Only `parity`, which stands above them, knows the other
dialects: it is looked up by name when one of these methods is called, here and nowhere else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, get_type_hints

from vit_config.errors import ConfigError
from vit_config.field_words import meant, reason_without
from vit_config.images.preprocess import Preprocess

ABOVE = "parity.porting.models.pretrained"
"""The module with the functions that these methods call."""
DType = Literal["float64", "float32", "float16", "bfloat16"]
"""Type of a loaded model's parameters."""
P = ParamSpec("P")
T = TypeVar("T")


class Reading(TypedDict, total=False):
    """The options of `parity.read_checkpoint`, for functions that hand them on."""

    dialect: str | None
    part: str | None
    like: str | None
    given: Mapping[str, Any] | None
    override: Mapping[str, Any] | None
    adapter: str | Path | None
    preprocess: Preprocess | str | Path | None
    license: str | None


class Fetching(Reading, total=False):
    """The options of `parity.from_pretrained`."""

    revision: str | None
    token: str | bool | None
    cache_dir: str | Path | None
    force_download: bool
    local_files_only: bool
    kernel: str
    dtype: DType | None


class Saving(TypedDict, total=False):
    """The options of `parity.save_pretrained` that `parity.push_to_hub` takes, too."""

    to: str
    preprocess: Preprocess | None
    verify: bool


class Placing(Saving, total=False):
    """The options of `parity.save_pretrained`."""

    name: str | None
    force: bool


class Pushing(Saving, total=False):
    """The options of `parity.push_to_hub`."""

    commit_message: str
    private: bool | None
    token: str | None
    branch: str | None
    create_pr: bool


def hands_on(options: type[Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function that hands options on refuse what is none of them, in its own name.

    Args:
        options: the type of its ``**`` argument, such as `Reading`.
    """

    def of(function: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(function).parameters.values()
        own = [each.name for each in parameters if each.kind != each.VAR_KEYWORD]
        known = [*own, *get_type_hints(options)]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for word in kwargs.keys() - set(known):
                near = meant(word, known)
                hint = f"did you mean {near!r}?" if near else reason_without([word], ())
                hint = hint or f"its arguments are {', '.join(known)}"
                raise ConfigError(f"parity.{function.__name__} has no argument {word!r}; {hint}")
            return function(*args, **kwargs)

        return call

    return of


@dataclass(frozen=True)
class About:
    """Facts about a model's weights beside the schema; they go wherever the weights go."""

    preprocess: Preprocess | None = None
    """Preparation of images, names of classes, licence; None if unknown."""
    provenance: str = "[]"
    """The files that the weights came through, oldest first: JSON, as a weights file's header has it."""

    def with_another_head(self) -> About:
        """Return the same facts for a model with other classes."""
        return replace(self, preprocess=self.preprocess and self.preprocess.replace(class_names=None))

    def of_another_size(self) -> About:
        """Return the same facts for a model of another image size."""
        return replace(self, preprocess=self.preprocess and self.preprocess.replace(image_size=None))


class Pretrained:
    """Mixin of the model that reads and writes the formats of other libraries."""

    about: About = About()

    @classmethod
    def from_pretrained(cls, source: str | Path, **options: Unpack[Fetching]) -> Self:
        """Load a model from a folder, a file or a Hub repository, see `parity.from_pretrained`."""
        return import_module(ABOVE).from_pretrained(source, framework=_framework(cls), **options)

    def save_pretrained(self, folder: str | Path, **options: Unpack[Placing]) -> Any:
        """Write a folder that timm or transformers opens, see `parity.save_pretrained`."""
        return import_module(ABOVE).save_pretrained(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Unpack[Pushing]) -> str:
        """Write such a folder to the Hub, see `parity.push_to_hub`."""
        return import_module(ABOVE).push_to_hub(self, repo_id, **options)


def _framework(model: type) -> str:
    """Return the framework of a model class: ``jax`` for vit_jax, ``torch`` for vit_torch."""
    return model.__module__.partition(".")[0].removeprefix("vit_")
