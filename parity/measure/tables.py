"""Tables for screens of any width: one that does not fit is listed row by row; nothing is cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

NARROWEST = 20
"""Characters that a column of running text keeps; if they do not fit, the table is listed row by row."""
UNLIMITED = 10_000


def show_table(table: Table, console: Console) -> None:
    """Print a table: unchanged if the screen is wide enough; else with its columns of running text,
    those that fold, wrapped between words; else row by row as text."""
    if not table.columns:
        return
    wide = console.options.update(width=UNLIMITED)
    columns = [_texts(column, console) for column in table.columns]
    widths = [max((each.cell_len for each in texts), default=0) for texts in columns]
    # the borders and the padding between the columns
    whole = console.measure(_untitled(table), options=wide).maximum
    between = whole - sum(widths)
    folds = [column.overflow == "fold" and not column.no_wrap for column in table.columns]
    least = [
        max(_longest_word(texts), min(width, NARROWEST)) if fold else width
        for texts, width, fold in zip(columns, widths, folds, strict=True)
    ]
    if whole > console.width and sum(least) + between > console.width:
        for text, indent in _rows(table, console):
            console.print(Padding(text, (0, 0, 0, indent), expand=False), highlight=False)
        return
    for column, width, fold in zip(table.columns, least, folds, strict=True):
        column.no_wrap = column.no_wrap or not fold
        column.min_width = width if fold else column.min_width
    console.print(table)


def _untitled(table: Table) -> Table:
    """Return the same table without its title and caption, which are wrapped."""
    bare = Table(box=table.box, padding=table.padding, pad_edge=table.pad_edge)
    bare.show_header, bare.show_edge, bare.columns = table.show_header, table.show_edge, table.columns
    bare.rows = table.rows
    return bare


def _texts(column: Column, console: Console) -> list[Text]:
    """Return the lines of a column's heading and cells."""
    cells = [column.header, *column.cells]
    return [line for cell in cells for line in _text(cell, console).split("\n", allow_blank=True)]


def _text(cell: object, console: Console) -> Text:
    return cell.copy() if isinstance(cell, Text) else console.render_str(str(cell), highlight=False)


def _longest_word(texts: Sequence[Text]) -> int:
    words = (Text(word).cell_len for text in texts for word in text.plain.split())
    return max(words, default=0)


def _rows(table: Table, console: Console) -> list[tuple[Text, int]]:
    """Return the lines of each row, with indentation: its first cell, then the others behind
    headings."""
    names, group = [], ""
    for column in table.columns:
        above, *below = _text(column.header, console).plain.split("\n")
        group = above or group
        names.append(" ".join(each for each in (group, *below) if each) if below else above)
    lines: list[tuple[Text, int]] = []
    if table.title:
        lines.append((_text(table.title, console), 0))
    cells = [[_text(cell, console) for cell in column.cells] for column in table.columns]
    for first, *rest in zip(*cells, strict=True):
        indent = len(first.plain) - len(first.plain.lstrip())
        first = first[indent:] if indent else first
        first.stylize("bold")
        if first.plain.strip():
            lines.append((first, indent))
        lines.append((Text(", ").join(labelled(names[1:], rest)), indent + 2))
    if table.caption:
        lines.append((_text(table.caption, console), 0))
    return [(text, indent) for text, indent in lines if text.plain]


def labelled(headings: Sequence[str], cells: Sequence[Text]) -> list[Text]:
    """Return the nonempty cells of a row, each behind its heading."""
    return [
        Text.assemble((f"{heading} " if heading else "", "dim"), cell)
        for heading, cell in zip(headings, cells, strict=True)
        if cell.plain.strip()
    ]
