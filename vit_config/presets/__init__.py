"""Named schemas: the embedded example, five well-known ways to write a ViT, and timm's architectures.

A name of timm's may carry one of its pretrained tags, as in ``vit_base_patch16_224.augreg_in21k``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping

from vit_config.errors import ConfigError
from vit_config.images.preprocess import Preprocess
from vit_config.presets import from_timm
from vit_config.presets.own import OWN
from vit_config.schema import ViTConfig

__all__ = ["PRESETS", "preset", "preset_preprocess", "preset_tags"]


class _Presets(Mapping[str, ViTConfig]):
    """Every preset by its name; a schema of timm's is built when it is first asked for."""

    def __getitem__(self, name: str) -> ViTConfig:
        return OWN[name] if name in OWN else from_timm.schema(name)

    def __contains__(self, name: object) -> bool:
        return name in OWN or name in from_timm.architectures()

    def __iter__(self) -> Iterator[str]:
        yield from OWN
        yield from from_timm.architectures()

    def __len__(self) -> int:
        return len(OWN) + len(from_timm.architectures())


PRESETS: Mapping[str, ViTConfig] = _Presets()
"""Every preset by its name, tags left out."""


def preset(name: str) -> ViTConfig:
    """Return the schema called `name`; with a tag, of the model that timm makes of it.

    Raises:
        ConfigError: there is no such preset, or no such tag.
    """
    architecture, tag = _split(name)
    return PRESETS[architecture] if tag is None else from_timm.schema(architecture, tag)


def preset_tags(name: str) -> tuple[str, ...]:
    """Return the pretrained tags of a preset, the default one first; none if it is not timm's.

    Raises:
        ConfigError: there is no such preset.
    """
    architecture, _ = _split(name)
    return () if architecture in OWN else tuple(from_timm.tags(architecture))


def preset_preprocess(name: str) -> Preprocess:
    """Return the preprocessing for the weights of a tag, of the default one if `name` has none.

    Raises:
        ConfigError: there is no such preset or tag, or it is not timm's and has no weights.
    """
    architecture, tag = _split(name)
    if architecture in OWN:
        raise ConfigError(
            f"preset {name!r} has no pretrained weights, and so no preprocessing; give a Preprocess"
        )
    return from_timm.preprocess(architecture, tag)


def _split(name: str) -> tuple[str, str | None]:
    """Split a name into the known preset and its known tag, if it has one."""
    if not isinstance(name, str):
        raise ConfigError(
            f"expected the name of a preset, such as 'digits', got a {type(name).__name__}"
        )
    architecture, dot, tag = name.partition(".")
    if architecture not in PRESETS:
        near = _nearest(architecture)
        hint = f"did you mean {near!r}?" if near else _what_there_is(name)
        raise ConfigError(f"unknown preset {name!r}; {hint}")
    if not dot:
        return architecture, None
    tags = preset_tags(architecture)
    if tag not in tags:
        there_are = f"its tags are {', '.join(tags)}" if tags else "it has none"
        raise ConfigError(f"preset {architecture!r} has no tag {tag!r}; {there_are}")
    return architecture, tag


def _nearest(name: str) -> str | None:
    """Find the most similar name; of several, the alphabet's first, as the smaller image size is."""
    near = difflib.get_close_matches(name, PRESETS, n=9)
    likeness = {each: difflib.SequenceMatcher(None, each, name).ratio() for each in near}
    return min(near, key=lambda each: (-likeness[each], each), default=None)


def _what_there_is(name: str) -> str:
    count = len(from_timm.architectures())
    own = ", ".join(sorted(OWN))
    path = f"{name} is a path, which parity.load reads"
    path = path if os.path.exists(name) else "nor is it a path here"  # a name may be too long for one
    return f"the presets are {own} and {count} of timm's names, such as 'vit_base_patch16_224'; {path}"
