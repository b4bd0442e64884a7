"""A lock file of the worst errors so far, so that an upgrade that makes them worse fails a test."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from parity.measure.shown import write_json
from vit_config import ConfigError
from vit_config.files.atomic import check_writable
from vit_config.files.foreign import parse_json, read_text

ROOM = 4.0
"""How many times an error may exceed the saved one: another processor rounds otherwise."""
GRAIN = 2.0**-52
"""One epsilon of float64; smaller saved errors count as this."""
UPDATE = "PARITY_LOCK_UPDATE"
"""Environment variable that, set to 1, replaces the errors in the file even by worse ones."""


def check_lock(path: Path, worst: Mapping[str, float]) -> None:
    """Compare errors with those in a file; write the file if there is none, or where a level is new.

    Args:
        worst: the largest error of each level.

    Raises:
        AssertionError: an error is more than `ROOM` times the saved one; the message has both.
        ConfigError: the file is not a lock file, or is a folder.
        MissingFileError: there is no folder to write it in.
    """
    check_writable(path)
    saved = _read(path)
    if os.environ.get(UPDATE) == "1":
        saved = {level: error for level, error in saved.items() if level not in worst}
    grown = [
        f"{level} {error:.1e}, was {saved[level]:.1e}"
        for level, error in worst.items()
        if level in saved and not error <= ROOM * max(saved[level], GRAIN)
    ]
    if grown:
        raise AssertionError(
            f"{path}: errors have grown more than {ROOM:g} times: {'; '.join(grown)}; find out"
            f" why, or set {UPDATE}=1 to accept them"
        )
    new = {level: error for level, error in worst.items() if level not in saved and math.isfinite(error)}
    if new or not path.exists():
        content = dict(sorted((saved | new).items()))
        write_json(path, content)


def _read(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    try:
        content = parse_json(read_text(path))
        if not isinstance(content, dict):
            raise ValueError("no object")
        return {str(level): float(error) for level, error in content.items()}
    except (ValueError, TypeError):
        raise ConfigError(
            f"{path}: expected a JSON object of errors by level; delete it to begin anew"
        ) from None
