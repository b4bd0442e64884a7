"""Rich's console, whose text acts on nothing: see `vit_config.terminal`. Own colours pass."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from vit_config.terminal import harmless


class Screen(Console):
    """A console that spells out what a stranger's text would do to the terminal."""

    def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
        """The pieces of text, each of them harmless."""
        for piece in super().render(*args, **options):
            yield piece if piece.control else piece._replace(text=harmless(piece.text))

    def on_broken_pipe(self) -> None:
        """Pass it on: rich would end with status 1, which here says that two models differ."""
        raise


def screen(width: int | None = None, **options: Any) -> Screen:
    """The screen as wide as it is, or as COLUMNS says; a file or a pipe `width` letters wide."""
    made = Screen(**options)
    told = made.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    if width is not None and not told:
        made.width = width
    return made
