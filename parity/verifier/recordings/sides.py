"""A recording of training as a side of a comparison."""

from __future__ import annotations

from pathlib import Path

from parity.measure.traces import Trace
from parity.measure.traces.reader import is_trace
from vit_config import ConfigError, MissingFileError


class Recorded:
    """A recording, opened for a comparison."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.trace = Trace(path)


def recordings(a: str | Path, b: str | Path) -> tuple[Recorded, Recorded] | None:
    """Open both sides if they are recordings; return None if neither is.

    Raises:
        ConfigError: only one of them is a recording.
        MissingFileError, WeightsError: a recording is missing or damaged.
    """
    recorded = [str(each).endswith(".trace") or is_trace(each) for each in (a, b)]
    if not any(recorded):
        return None
    if not all(recorded):
        one, other = (a, b) if recorded[0] else (b, a)
        if ":" not in str(other) and not Path(other).exists():
            raise MissingFileError(f"{other}: no such file or folder; give a recording, as {one} is")
        raise ConfigError(
            f"{one} is a recording and {other} is none; record both by parity.record, or give both as"
            " programs"
        )
    return Recorded(Path(a)), Recorded(Path(b))
