"""Text from strangers: read with a limit, from ordinary files alone, and parsed in bounded time.

Python's own parsers recurse until the interpreter refuses, are quadratic in the digits of a number
and in the parts of a key, and build whatever a hundred megabytes of brackets ask for.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_JSON = 2**26
"""Most bytes of a JSON file; an index of 100,000 tensors has 10 million."""
LONGEST_TOML = 2**20
_MOST_CONTAINERS = 1_000_000
MOST_ENTRIES = 2_000_000
"""Most commas; a tokenizer of 260,000 words has 1.3 million."""
_DEEPEST_KEY = 64


def check_ordinary(path: str | Path) -> None:
    """Refuse a device or a pipe, which may have no end; a path that does not exist passes.

    Raises:
        ValueError: the path is a device, pipe or socket.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError("it is a device, pipe or socket, not a file; give a file")


def read_text(path: str | Path, most: int = LONGEST_JSON) -> str:
    """Read the text of an ordinary file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not an ordinary one, longer than `most` bytes, or not UTF-8.
    """
    return read_bytes(path, most).decode()


def read_bytes(path: str | Path, most: int) -> bytes:
    """Read an ordinary file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not an ordinary one, or longer than `most` bytes.
    """
    check_ordinary(path)
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size  # `read` allocates as many bytes as it is asked for
        content = file.read(min(most, size) + 1)
    if len(content) > most:
        raise ValueError(f"more than {most} bytes; no such file needs so many")
    return content


def parse_json(
    text: str | bytes,
    *,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    entries: int = MOST_ENTRIES,
) -> Any:
    """Parse a JSON text.

    Args:
        entries: most commas that the text may have.
        pairs: function that makes an object of its entries, as `json.loads` calls it; by default a
            dictionary.

    Raises:
        json.JSONDecodeError, UnicodeDecodeError: the text is not JSON.
        ValueError: the text is nested too deep, or has too many entries, a number of too many
            digits, or half a surrogate.
    """
    if isinstance(text, bytes):
        text = text.decode()
    if text.count("[") + text.count("{") > _MOST_CONTAINERS or text.count(",") > entries:
        raise ValueError(f"more than {_MOST_CONTAINERS} lists or {entries} entries; no file needs them")
    try:
        content = json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("nested too deep; no such file is") from None
    if "\\ud" in text or "\\uD" in text:  # half of a pair is nothing that UTF-8 could write
        json.dumps(content, ensure_ascii=False).encode()
    return content


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object. ValueError: a key is there twice, of which any reader may take another."""
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice} is given twice; keep one")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML.
        ValueError: the text is too long, nested too deep, or has a key of too many parts.
    """
    if len(text) > LONGEST_TOML:
        raise ValueError(f"more than {LONGEST_TOML} characters; no config needs so many")
    if any(part.count(".") > _DEEPEST_KEY for part in re.split("[=,\n]", text)):
        raise ValueError(f"a key of more than {_DEEPEST_KEY} parts; no config has one")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep; no config is") from None
