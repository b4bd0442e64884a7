"""timm's Vision Transformers as data: each one's schema, and its weights' preprocessing.

``tools/generate_presets.py`` writes ``timm.json`` from the models of an installed timm, in three tables.
``schemas``: for each module and architecture, the fields that are not their default. ``left_out``:
arguments of an architecture that act in training alone and are in no schema. ``tags``: for each
ARCHITECTURE.TAG, the default tag first, ``schema``, the fields that differ from the architecture's;
``preprocess``, those that are not their default; and ``weights``, a repository on the Hugging Face Hub,
"url" for weights elsewhere, or null where timm has none.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from vit_config.images.preprocess import Preprocess
from vit_config.schema import ViTConfig

PATH = Path(__file__).with_name("timm.json")


@cache
def data() -> dict[str, Any]:
    """Read the file, when it is first asked for."""
    return json.loads(PATH.read_text(encoding="utf-8"))


@cache
def architectures() -> dict[str, Any]:
    """Return each architecture's entry by its name: ``module``, ``schema``, ``tags``, and perhaps
    ``left_out``."""
    entries: dict[str, Any] = {
        name: {"module": module, "schema": schema, "tags": {}}
        for module, schemas in data()["schemas"].items()
        for name, schema in schemas.items()
    }
    for name, arguments in data()["left_out"].items():
        entries[name]["left_out"] = arguments
    for full, entry in data()["tags"].items():
        name, _, tag = full.partition(".")
        entries[name]["tags"][tag] = entry
    return entries


def tags(name: str) -> dict[str, Any]:
    """Return each tag's entry of an architecture, the default one first."""
    return architectures()[name]["tags"]


@cache
def schema(name: str, tag: str | None = None) -> ViTConfig:
    """Build the schema of an architecture, or of the model that timm makes of one of its tags.

    Raises:
        KeyError: there is no such architecture or tag.
    """
    changes = {} if tag is None else tags(name)[tag].get("schema", {})
    return ViTConfig(**{**architectures()[name]["schema"], **changes})


def preprocess(name: str, tag: str | None = None) -> Preprocess:
    """Return the preprocessing for the weights of a tag; of the default one unless one is given.

    Raises:
        KeyError: there is no such architecture or tag.
    """
    entry = tags(name)[tag or next(iter(tags(name)))]
    return Preprocess(**entry.get("preprocess", {}))
