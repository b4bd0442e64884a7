"""The known dialects: each library's names and layouts for a Vision Transformer's tensors, as a table.

Another package adds its own by an entry point in the group ``parity.dialects`` that names a `Dialect` or
a tuple of them; docs/dialects.md shows how.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points

from parity.porting.dialects.dialect import Dialect
from parity.porting.formats.suffixes import PROGRAMS
from vit_config import ConfigError

MODULES = (
    "own", "nnx", "hf.tipsv2", "hf.sapiens2", "dino", "native", "eva_clip", "openmmlab", "timm",
    "perception", "clip", "torchvision", "scenic", "google", "big_vision", "vit_pytorch", "hf.beit",
    "hf.deit", "hf.vit", "hf.dinov2", "hf.dinov3", "hf.clip", "hf.janus", "hf.gemma4", "hf.siglip",
    "hf.blip", "hf.owlvit", "hf.aimv2", "hf.internvl", "hf.videomae", "hf_flax", "bonsai", "equimo",
    "jimm", "keras_hub.vit", "keras_hub.dino", "keras_hub.siglip", "gguf",
)  # fmt: skip
"""Modules of `records` that define dialects, the more specific ones first."""

OWN_NAMES = {"jax": "parity", "torch": "parity"}
"""Aliases of the project's own dialect, which both twins load."""
_ALSO = {"huggingface": "hf", "pytorch": "torch", "flax": "jax"}
"""What people call some families, for advice alone."""


@cache
def dialects() -> tuple[Dialect, ...]:
    """Return every dialect in the order in which they are tried: other packages', then those here.

    Raises:
        ConfigError: an entry point is no dialect, or two dialects have the same name.
    """
    every: list[Dialect] = []
    for entry in entry_points(group="parity.dialects"):
        loaded = entry.load()
        for each in loaded if isinstance(loaded, tuple) else (loaded,):
            if not isinstance(each, Dialect):
                raise ConfigError(f"entry point {entry.value} is a {type(each).__name__}, not a Dialect")
            every.append(each)
    for module in MODULES:
        every += importlib.import_module(f"parity.porting.dialects.records.{module}").DIALECTS
    names = [each.name for each in every]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"several dialects are called {', '.join(twice)}")
    return tuple(every)


def find_dialects(name: str) -> tuple[Dialect, ...]:
    """Return the dialect of this name, or the dialects of this family.

    Raises:
        ConfigError: no dialect or family has this name.
    """
    name = OWN_NAMES.get(name, name)
    by_name = tuple(each for each in dialects() if each.name == name)
    matches = by_name or tuple(each for each in dialects() if each.family == name)
    if not matches:
        families = sorted({each.family for each in dialects()})
        said = name.lower().replace("_", "-")
        meant = [_ALSO[said]] if said in _ALSO else get_close_matches(said, families, 1)
        meant = meant or [each.family for each in dialects() if said in each.title.lower()]
        if said in PROGRAMS:
            raise ConfigError(f"{name} is no dialect of weights; `parity export --to {said}` writes it")
        hint = f"did you mean {meant[0]}? There" if meant else "there"
        raise ConfigError(
            f"unknown dialect {name!r}; {hint} are {', '.join(families)}, and parity list --dialects"
            " shows what is in each"
        )
    return matches
