"""Reading and writing ``id2label`` of ``config.json``: number and names of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = "Classification"
"""Part of the name of every class with a classifier, of images or of videos."""
DEFAULT_CLASSES = 2  # the library's default for a classifier whose file states no number


def num_classes(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of classes, if the file is of a classifier."""
    architectures = config.get("architectures") or ()
    if not any(HEAD in name for name in architectures):
        return {}
    names = config.get("id2label")
    if isinstance(names, dict):
        return {"num_classes": len(names)}
    count = config.get("num_labels")
    return {"num_classes": DEFAULT_CLASSES if count is None else count}


def class_names(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the class names; None if there are none, or only the library's placeholders."""
    names = config.get("id2label")
    if not isinstance(names, dict) or not names:
        return None
    by_index = (names.get(str(index)) for index in range(len(names)))
    ordered = tuple(name for name in by_index if isinstance(name, str))
    return ordered if len(ordered) == len(names) and ordered != _made_up(len(names)) else None


def entries(count: int, names: Sequence[str] | None) -> dict[str, Any]:
    """Return ``id2label`` and ``label2id``; neither for a model without a head."""
    if not count:
        return {}
    names = names if names is not None and len(names) == count else _made_up(count)
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }


def _made_up(count: int) -> tuple[str, ...]:
    return tuple(f"LABEL_{index}" for index in range(count))
