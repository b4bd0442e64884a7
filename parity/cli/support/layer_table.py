"""A model as a table: every layer's type, shapes, parameters and FLOPs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from parity.twins.anatomy import ModulePart, RepeatedModules, Shape, fold

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
