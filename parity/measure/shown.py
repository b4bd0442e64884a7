"""Formatting of results: numbers as text, plain data as JSON."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from vit_config.files.atomic import write_atomically
from vit_config.other_python import FOLDER


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


def alike(names: Sequence[str]) -> dict[str, list[str]]:
    """Write names that differ in numbers alone as one, "blocks.{0-11}.bias" for those of 12 blocks.

    Returns:
        The names that each text stands for, by the text.
    """
    forms: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        forms.setdefault(re.sub(r"\d+", "\0", name), []).append(name)
    return {text: some for form, own in forms.items() for text, some in _as_one(form, own).items()}


def _as_one(form: str, names: list[str]) -> dict[str, list[str]]:
    rows = {name: [int(each) for each in re.findall(r"\d+", name)] for name in names}
    columns = list(zip(*rows.values(), strict=True))
    steps = [tuple(each - column[0] for each in column) for column in columns]
    varying = {step: k for k, step in enumerate(steps) if any(step)}  # A's block and B's go together
    if len(varying) < 2 or math.prod(len({*column}) for column in columns) == len(rows):
        return {_filled(form, [_runs(sorted({*column})) for column in columns]): names}
    splits = []
    for k in varying.values():  # both norms of each block: those that one number parts
        parts: dict[int, list[str]] = {}
        for name, row in rows.items():
            parts.setdefault(row[k], []).append(name)
        if 1 < len(parts) < len(rows):
            splits.append({t: n for some in parts.values() for t, n in _as_one(form, some).items()})
    return min(splits, key=len, default={name: [name] for name in names})


def _filled(form: str, texts: Sequence[str]) -> str:
    parts = form.split("\0")
    return "".join(f"{part}{text}" for part, text in zip(parts, [*texts, ""], strict=True))


def _runs(numbers: Sequence[int]) -> str:
    """Write numbers as runs in braces, and one alone as it is: {0-3,7}."""
    runs: list[list[int]] = []
    for each in numbers:
        if runs and each == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], each]
        else:
            runs.append([each])
    if len(numbers) == 1:
        return str(numbers[0])
    return f"{{{','.join('-'.join(map(str, run)) for run in runs)}}}"


def write_json(path: Path, content: Any) -> None:
    """Write plain data as JSON for others, see `json_text` and `portable`, whole or not at all."""
    write_atomically(path, (json_text(portable(content)) + "\n").encode())


def machine_folders() -> str:
    """Return a regular expression of this machine's folders, each with its separator: those that Python
    imports from, the working directory, and that for temporary files."""
    folders = {os.path.abspath(each) for each in (FOLDER, *sys.path, os.curdir, gettempdir())}
    longest = sorted((each for each in folders if len(each) > 1), key=len, reverse=True)
    return rf"(?<![\w.-])(?:{'|'.join(re.escape(each + os.sep) for each in longest)})"


def portable(value: Any) -> Any:
    """Return a text, or plain data, without this machine's folders: files are named from those that
    Python knows on, from ``~`` on in the user's own, and by themselves in any other that is there."""
    folders, home = re.compile(machine_folders()), os.path.expanduser("~") + os.sep
    other = re.compile(r"""(?<![\w.~/-])/(?:[^\s/"'<>:;,]+/)+""")

    def named(each: Any) -> Any:
        if isinstance(each, str):
            each = folders.sub("", each) if os.sep in each else each
            each = each.replace(home, f"~{os.sep}") if len(home) > 2 else each
            return other.sub(lambda found: "" if os.path.isdir(found[0]) else found[0], each)
        if isinstance(each, dict):
            return {named(key): named(value) for key, value in each.items()}
        return [*map(named, each)] if isinstance(each, list | tuple) else each

    return named(value)


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
