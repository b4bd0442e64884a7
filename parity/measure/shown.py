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
    """Write plain data as JSON, whole or not at all; infinities, which JSON does not have, as text."""
    text = json.dumps(finite(content), indent=2, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def finite(value: Any) -> Any:
    """Return plain data with each number that JSON does not have as text."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
