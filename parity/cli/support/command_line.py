"""Typed command lines by tyro, whose errors become one line."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import Any

import tyro

from vit_config import ConfigError


def parse(kind: type, argv: Sequence[str], *, prog: str, **options: Any) -> Any:
    """Read `argv` into the dataclass `kind`; options as `tyro.cli` takes.

    Raises:
        ConfigError: an unknown flag, or a value that is not valid.
        SystemExit: after printing help.
    """
    screen = io.StringIO()
    try:
        with contextlib.redirect_stderr(screen):
            return tyro.cli(kind, args=list(argv), prog=prog, **options)
    except SystemExit as end:
        if not end.code:
            raise
    raise ConfigError(_one_line(screen.getvalue(), prog))


def _one_line(box: str, prog: str) -> str:
    """The first part of tyro's error box - the error - and what it thinks was meant."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ") for line in box.splitlines()]
    parts = [part.split("\n") for part in re.split(r"\n[╭╰─].*", "\n" + "\n".join(lines))]
    texts = [" ".join(part).strip() for part in parts]
    texts = [text for text in texts if text]
    message = texts[0] if texts else "the command line cannot be understood"
    meant = next((re.search(r"Perhaps you meant: (--[\w.-]+)", text) for text in texts[1:]), None)
    hint = f"perhaps you meant {meant[1]}" if meant else f"{prog} --help lists every flag"
    return f"{message.rstrip('.')}; {hint}"
