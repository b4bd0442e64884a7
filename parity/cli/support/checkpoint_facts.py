"""The facts of a checkpoint that `parity inspect` shows beside its layers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from parity.measure.tables import show_table
from parity.porting.formats.metadata import Metadata
from parity.porting.opening.provenance import Hop
from parity.porting.reading.checkpoint import Checkpoint
from parity.porting.recognition.known import ASSUMED
from parity.porting.text.read import has_text, read_text
from parity.twins.anatomy import ModulePart, RepeatedModules, Shape, fold
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


IDLE = ("Dropout", "DropPath", "PatchDropout", "Identity")
"""Layers that do nothing in evaluation."""


class LayerRow(NamedTuple):
    """One row of the table: a module, or a parameter of a module that has modules too."""

    depth: int
    name: str
    type: str
    input_shape: Shape | None
    output_shape: Shape | None
    parameters: int
    flops: int


def lines(parts: Sequence[ModulePart], *, depth: int, everything: bool) -> Iterator[LayerRow]:
    """Yield the rows of the table.

    Args:
        depth: levels to show below the model.
        everything: whether to show repeated blocks one by one, and layers that do nothing.
    """
    if everything:
        runs = [RepeatedModules(part, part.path, 1) for part in parts]
    else:
        runs = fold([part for part in parts if part.type not in IDLE or part.parameters])
    parents = {part.path.rpartition(".")[0] for part in parts if part.path}
    for run in runs:
        part = run.first
        if part.depth > depth:
            continue
        name = part.path.rpartition(".")[2]
        if run.count > 1:
            name += f" - {run.last.rpartition('.')[2]} (each of {run.count})"
        shapes = (part.input_shape, part.output_shape)
        yield LayerRow(part.depth, name or "model", part.type, *shapes, part.parameters, part.flops)
        if part.path in parents and part.depth < depth:
            for own, shape in part.own.items():
                count = math.prod(shape)
                yield LayerRow(part.depth + 1, own, "parameter", None, shape, count, 0)


def layer_table(rows: Sequence[LayerRow]) -> Table:
    """Return the rows as a table to print."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("layer", "type", "input", "output"):
        table.add_column(name, no_wrap=True)
    for name in ("parameters", "MFLOPs"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text("  " * row.depth + row.name),
            row.type,
            shape_text(row.input_shape),
            shape_text(row.output_shape),
            f"{row.parameters:,}" if row.parameters else "-",
            f"{row.flops / 1e6:,.2f}" if row.flops else "-",
            style="dim" if row.type == "parameter" else None,
        )
    return table


def totals(model: ModulePart) -> str:
    """Return the parameters and FLOPs of the whole model, in words."""
    batch = (model.input_shape or (1,))[0]
    images = "1 image" if batch == 1 else f"{batch} images"
    return (
        f"[bold]{model.parameters:,}[/] parameters;"
        f" [bold]{flops_text(model.flops)}[/] for {images}"
        " (matrix products and convolutions, a multiply-add counted as two)"
    )


def bytes_text(count: int) -> str:
    """Return a number of bytes as text, in the unit that suits it."""
    for power, unit in ((9, "GB"), (6, "MB")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def flops_text(count: float) -> str:
    """Return a number of FLOPs as text, in the unit that suits it."""
    return f"{count / 1e9:,.2f} GFLOPs" if count >= 1e8 else f"{count / 1e6:,.2f} MFLOPs"


def per_image(model: ModulePart) -> float:
    """Return the FLOPs for one image of the batch."""
    return model.flops / (model.input_shape or (1,))[0]


def shape_text(shape: Sequence[int] | None) -> str:
    """Return a shape as text, such as 2x197x768."""
    return "-" if shape is None else "x".join(map(str, shape))
