"""How often each file is opened."""

import builtins
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


@contextmanager
def opens() -> Iterator[Counter[str]]:
    """Counts what is opened to be read from here on, by file name."""
    counts: Counter[str] = Counter()
    usual = io.open

    def counted(file, mode="r", *args, **kwargs):
        if not isinstance(file, int) and "r" in mode:
            counts[Path(file).name] += 1
        return usual(file, mode, *args, **kwargs)

    with mock.patch.object(io, "open", counted), mock.patch.object(builtins, "open", counted):
        yield counts
