"""The facts of a checkpoint that `parity inspect` shows beside its layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.cli.support.layer_table import bytes_text, shape_text
from parity.measure.tables import show_table
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.provenance import Hop
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.recognition.known import ASSUMED
from parity.porting.text.read import has_text, read_text
from vit_config import Preprocess, Schema, ViTConfig
from vit_config.errors import USER_ERRORS

MANY = 5
"""Number of class names that are shown."""


def facts_table() -> Table:
    """Make a table of two columns: names of facts, and their values."""
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    return facts


def add_checkpoint(facts: Table, checkpoint: Checkpoint, problems: Sequence[str] | None) -> None:
    """Add the facts of a file, and how they are known.

    Args:
        problems: anomalies; None where values were not looked at.
    """
    arrays = checkpoint.arrays.values()
    types = ", ".join(sorted({stored.dtype.name for stored in checkpoint.tensors.values()}))
    size = bytes_text(sum(stored.nbytes for stored in arrays))
    facts.add_row("file", f"{checkpoint.container.kind}: {len(arrays)} tensors, {types}, {size}")
    facts.add_row("dialect", escape(f"{checkpoint.dialect.name}, by {checkpoint.why}"))
    for note in checkpoint.notes:
        facts.add_row("", escape(note))
    if (tower := text_tower(checkpoint)) is not None:
        facts.add_row("text tower", escape(tower))
    facts.add_row("licence", escape(checkpoint.license or "unknown"))
    facts.add_row("classes", escape(classes(checkpoint.config, checkpoint.metadata)))
    for hop in checkpoint.hops:
        facts.add_row("came from", escape(_hop(hop)))
    if problems is None:
        facts.add_row("anomalies", "not looked for")
    else:
        facts.add_row("anomalies", "[bold red]" + escape("; ".join(problems)) if problems else "none")


def text_tower(checkpoint: Checkpoint) -> str | None:
    """Describe the text tower beside an image tower, or say why it cannot be read; None without one."""
    dialect = has_text(checkpoint)
    if dialect is None:
        return None
    try:
        fields = flat_fields(read_text(checkpoint).config, defaults=True)
    except USER_ERRORS as error:
        return f"{dialect.name}: {error}"
    return f"{dialect.name}: {', '.join(f'{name}={value}' for name, value in fields)}"


def print_origins(console: Console, checkpoint: Checkpoint) -> None:
    """Print every field of the schema with its origin; the assumed fields on one line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("field", "value", "from"):
        table.add_column(heading, overflow="fold")
    assumed = []
    for name, value in flat_fields(checkpoint.config, defaults=True):
        origin = checkpoint.origins[name.partition(".")[0]]
        if origin == ASSUMED:
            assumed.append(f"{name}={value}")
        else:
            table.add_row(name, escape(value), escape(origin))
    show_table(table, console)
    if assumed:
        console.print(f"[dim]assumed: {escape(', '.join(assumed))}[/]")
    console.print()


def differences(schema: Schema) -> str:
    """Return the fields that differ from their defaults, as one line."""
    return ", ".join(f"{name}={value}" for name, value in flat_fields(schema, defaults=False))


def flat_fields(schema: Schema, *, defaults: bool) -> Iterator[tuple[str, str]]:
    """Yield fields and values as text, those of an inner schema as ``rope.theta``.

    Args:
        defaults: whether to give fields at their default too.
    """
    yield from _flat(schema.model_dump(exclude_defaults=not defaults))


def preprocessing(preprocess: Preprocess) -> str:
    """Return the preprocessing of pixels as one line: of `later` fields, those that say something."""
    usual = [(name, type(preprocess).model_fields[name].default) for name in preprocess.later]
    fields = ((name, getattr(preprocess, name)) for name in preprocess.fields())
    return ", ".join(
        f"{name}={value}" for name, value in fields if value is not None and (name, value) not in usual
    )


def classes(cfg: ViTConfig, metadata: Metadata) -> str:
    """Return the number of classes and their names, the first few of many, as one line."""
    if not cfg.num_classes:
        return "none: the model has no head"
    if metadata.class_names is None:
        return f"{cfg.num_classes}, names unknown"
    names = metadata.class_names
    shown = [*names[:MANY], "..."] if len(names) > MANY else names
    return f"{len(names)}: {', '.join(shown)}"


def to_dict(checkpoint: Checkpoint, problems: Sequence[str] | None) -> dict[str, Any]:
    """Return the facts of a file as plain data."""
    return {
        "container": checkpoint.container.kind,
        "dialect": checkpoint.dialect.name,
        "recognised_by": checkpoint.why,
        "origins": checkpoint.origins,
        "preprocess_from": checkpoint.preprocess_origin,
        "notes": list(checkpoint.notes),
        "anomalies": None if problems is None else list(problems),
        "text_tower": text_tower(checkpoint),
        "provenance": [hop.to_dict() for hop in checkpoint.hops],
        "tensors": {
            name: {"shape": stored.shape, "dtype": stored.dtype.name}
            for name, stored in checkpoint.tensors.items()
        },
    }


def _flat(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{below}", text) for below, text in _flat(value))
        elif name in ("image_size", "patch_size", "reference_grid") and value is not None:
            yield name, shape_text(value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _hop(hop: Hop) -> str:
    text = f"{hop.source}, {hop.container}, {hop.dialect}, sha256 {hop.digest[:16]}"
    return text + (f"; {'; '.join(hop.done)}" if hop.done else "")
