"""Checkpoints of names and shapes alone: of any size, and nothing of them is held or written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from parity.porting.dialects.sidecars import texts
from parity.porting.formats import Container, Stored
from parity.porting.opening.opened import Opened
from parity.porting.writing.conversion import header_of
from parity.porting.writing.conversion_plan import Target

VALUE = np.float32(0.5)
"""Of every tensor: neither of the values that a rewriting may leave out."""


def unread(
    shapes: Mapping[str, tuple[int, ...]], folder: Path, sidecars: Mapping[str, Any] | None = None
) -> Opened:
    """A folder with these tensors, each of one value that is stored once, and these config files."""
    tensors = {
        name: Stored(shape, VALUE.dtype, lambda shape=shape: np.broadcast_to(VALUE, shape))
        for name, shape in shapes.items()
    }
    return Opened(Container(folder, (), "unread", tensors, sidecars=dict(sidecars or {})), folder.name)


def as_written(target: Target, folder: Path) -> Opened:
    """What a conversion would write into a folder, opened again; its config files alone are there."""
    folder.mkdir()
    files = texts(target.dialect, target.state.config, target.metadata)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    sidecars = {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}
    container = Container(
        folder,
        (),
        "unread",
        target.tensors,
        metadata=header_of(target, "safetensors"),
        sidecars=sidecars,
    )
    return Opened(container, folder.name)
