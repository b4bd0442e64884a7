"""Formatting of results: numbers as text, plain data as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vit_config.files.atomic import write_atomically


def number(value: float) -> str:
    """Format an error or a limit with two digits."""
    return f"{value:.1e}" if value else "0"


def first_three(texts: Sequence[str], more: str = "more") -> str:
    """List three texts, and count the others as so many `more`."""
    others = f" and {len(texts) - 3} {more}" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + others


def first_few(numbers: Sequence[Any], most: int) -> str:
    """List the first of some numbers, with dots for the others."""
    return ", ".join(map(str, numbers[:most])) + (", ..." if len(numbers) > most else "")


def write_json(path: Path, content: Any) -> None:
    """Write plain data as JSON, see `json_text`, whole or not at all."""
    write_atomically(path, (json_text(content) + "\n").encode())


def json_text(content: Any, *, indent: int | None = 2) -> str:
    """Return plain data as JSON; NaN and infinities, which JSON does not have, as text.

    Args:
        indent: None puts all on one line.
    """
    return json.dumps(finite(content), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """Return plain data with each number that JSON does not have as text."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
