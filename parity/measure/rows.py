"""A table whose rows are printed one by one, as they become known, on a screen of any width."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from parity.measure.tables import UNLIMITED, labelled
from vit_config.screen import screen

VERDICT = 11
"""Characters kept for the last cell, which has no heading."""


class Column(NamedTuple):
    """The heading and the width of a column."""

    heading: str
    width: int
    right: bool = True
    """Whether cells are right-aligned, as numbers are."""

    def fit(self, text: str) -> str:
        """Pad a cell to the column's width, with at least one space."""
        if self.right:
            return f" {text:>{self.width - 1}}"
        return f"{text:{self.width - 1}} "


class Rows:
    """Rows printed in columns if the screen is wide enough, else listed below their first cells."""

    def __init__(self, *columns: Column, console: Console | None = None) -> None:
        self._columns = columns
        self._console = console or screen(UNLIMITED)
        width = sum(column.width for column in columns)
        self._wide = width + VERDICT <= self._console.width
        if self._wide:
            self._say("".join(column.fit(column.heading) for column in columns))

    def add(self, *cells: str, verdict: str = "") -> None:
        """Print a row, one cell per column, with its verdict at the end."""
        if not self._wide:
            self._tell(cells, verdict)
            return
        line = "".join(column.fit(cell) for column, cell in zip(self._columns, cells, strict=True))
        whole = f"{line}  {verdict}"
        if len(whole) <= self._console.width:
            self._say(whole)
        else:
            self._say(line)
            self._console.print(Padding(Text(verdict), (0, 0, 0, 2), expand=False), highlight=False)

    def _tell(self, cells: tuple[str, ...], verdict: str) -> None:
        headings = [column.heading.strip() for column in self._columns]
        self._console.print(Text(cells[0], "bold"), highlight=False)
        parts = labelled(headings[1:], [Text(cell.strip()) for cell in cells[1:]])
        parts += [Text(verdict)] if verdict else []
        self._console.print(Padding(Text(", ").join(parts), (0, 0, 0, 2), expand=False), highlight=False)

    def _say(self, line: str) -> None:
        self._console.print(Text(line.rstrip()), soft_wrap=True, highlight=False)
