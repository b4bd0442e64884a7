"""Rich's console with harmless text, see `vit_config.terminal`. Its own colours pass."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from vit_config.terminal import harmless


class Screen(Console):
    """A console that spells out control characters in other people's text."""

    def render(self, *args: Any, **options: Any) -> Iterable[Segment]:
        """Yield the pieces of text, each made harmless."""
        for piece in super().render(*args, **options):
            yield piece if piece.control else piece._replace(text=harmless(piece.text))

    def on_broken_pipe(self) -> None:
        """Raise it again: rich would end with status 1, which here says that two models differ."""
        raise


def screen(width: int | None = None, **options: Any) -> Screen:
    """Make a screen of the terminal's width or of COLUMNS; for a file or a pipe of `width` letters."""
    made = Screen(**options)
    has_width = made.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    if width is not None and not has_width:
        made.width = width
    return made
