"""Writing the answers to many images: the terminal, JSON lines, CSV, an array of features."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from csv import writer
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from parity.measure.shown import json_text
from vit_config.files.atomic import atomic_file, together
from vit_config.terminal import complain, say

if TYPE_CHECKING:
    from parity.porting.models.loaded import Prediction

EVERY = 5.0
"""Seconds between two lines of progress."""
_HEADER = 128
"""Bytes before the numbers of an .npy file, whatever the number of rows."""


class Answers:
    """A writer of answers, one by one; files get their names when all are written."""

    def __init__(self, prog: str, *, json: Path | None, csv: Path | None, features: Path | None, k: int):
        self._prog, self._rows, self._width = prog, 0, 0
        self._open, self._k = ExitStack(), k
        self._paths = features, csv, json  # what is read first gets its name last
        self._began = self._last = time.monotonic()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(together())
            opened = [p and stack.enter_context(atomic_file(p, force=True)) for p in self._paths]
            self._features, self._csv, self._json = opened
            self._open = stack.pop_all()
        if self._csv is not None:
            places = range(1, self._k + 1)
            head = [f"{what}_{place}" for place in places for what in ("label", "probability")]
            self._csv.write(_line(["image", *head]))
        if self._features is not None:
            self._features.write(bytes(_HEADER))
            self._open.push(self._fill_header)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)  # type: ignore[arg-type]

    def _fill_header(self, kind: object, *_: object) -> None:
        """Write how many rows there are, unless the answers ended with an exception."""
        if self._features is not None and kind is None:
            self._features.seek(0)
            self._features.write(_header(self._rows, self._width))
            self._features.seek(0, io.SEEK_END)

    def add(self, path: str, classes: Sequence[Prediction], pooled: np.ndarray) -> None:
        """Write one image's classes, none for a model without a head, and its features (D,)."""
        if classes:
            named = ", ".join(f"{each.label} {each.probability:.4f}" for each in classes)
            say(f"{path}  {named}", flush=True)
        if self._json is not None:
            entries = [{"label": each.label, "probability": each.probability} for each in classes]
            self._json.write(f"{json_text({'image': path, 'classes': entries}, indent=None)}\n".encode())
        if self._csv is not None:
            entries = [part for each in classes for part in (each.label, f"{each.probability:.6g}")]
            self._csv.write(_line([path, *entries]))
        if self._features is not None:
            self._width = pooled.size
            self._features.write(pooled.astype("<f4").tobytes())
        self._rows += 1

    def tell(self, done: int, total: int | None) -> None:
        """Print the progress now and then, where answers do not scroll by."""
        now = time.monotonic()
        if now - self._last < EVERY or done == total or (self._rows and sys.stdout.isatty()):
            return
        self._last = now
        elapsed, of, left = now - self._began, "", ""
        if total:
            of = f" of {total}"
            left = f", {timedelta(seconds=round(elapsed / done * (total - done)))} left"
        complain(f"{self._prog}: {done}{of} images, {done / elapsed:.1f} a second{left}")


def _line(values: Sequence[object]) -> bytes:
    """Return one line of a CSV file, in UTF-8; what is not, as a byte in a file's name, is spelled out
    as at the terminal and in JSON."""
    text = io.StringIO()
    writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode(errors="backslashreplace")


def _header(rows: int, width: int) -> bytes:
    """Return the header of an .npy file of float32 numbers (rows, width)."""
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(file, header)
    assert file.tell() == _HEADER
    return file.getvalue()


def names_of(given: Sequence[str], stdin: Iterable[str]) -> Iterator[str]:
    """Yield the names on the command line; for ``-`` the lines of standard input, as they come."""
    yield from (name for name in given if name != "-")
    if isinstance(stdin, io.TextIOWrapper):
        stdin.reconfigure(errors="surrogateescape")  # as Python reads the names of files
    if "-" in given:
        yield from filter(None, (line.rstrip("\n") for line in stdin))
