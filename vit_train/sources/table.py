"""Images that a table lists: a CSV or Parquet file with a path, a label and perhaps a split for each."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from vit_config.errors import DataError, MissingFileError, first_line
from vit_config.files.held import most_of
from vit_train.data.dataset import ImageDataset, named_classes
from vit_train.data.records import Label, Records
from vit_train.sources.fingerprint import fingerprint
from vit_train.sources.folder import HELD_OUT, ImageFiles
from vit_train.sources.pixels import set_of
from vit_train.sources.place import Place, open_ordinary, read_all, resolve_below

SPLITS = {"train": "train", "test": "test"} | dict.fromkeys(("val", "valid", "validation"), "validation")
"""Names of splits, as they are written and as they are called here."""
LONGEST = 2**28
"""Most bytes of a table, in Parquet of the columns that are read, unpacked."""
ROW, MOST = 128, 3 * 2**28
"""Bytes of memory that a row of CSV takes, and most of all."""
LEAST = 16
"""Least bytes of a row of Parquet."""
AT_ONCE = 4096
"""Rows of Parquet that are read before their bytes are counted."""
BETWEEN = ";"
"""Separator of an image's labels in a column of text."""
COLUMNS = ("path", "label", "labels", "split")
"""Columns that are read."""
Row = tuple[str, Any, str]
"""A path, a label or all labels, and a split; empty for none."""


def open_table(spec: str, path: Place) -> ImageDataset:
    """Open the images that a CSV or Parquet file lists.

    Its columns are ``path``, relative to the file's folder; ``label``, the name of the class, or
    ``labels``, any number of names (in text with `BETWEEN` between them); and, if wanted, ``split``:
    train, val (or validation, valid) or test. Without a split for testing, that for validation is the
    test split; without either, or without the column, every tenth image of a class is held out for
    testing. Classes are numbered in the order of their sorted names, numbers by their size.

    Raises:
        MissingFileError: there is no such file, or a file that it lists is not there.
        DataError: the file or a row of it cannot be used; the message says why.
    """
    rows, several = _read(spec, path)
    root = path.parent
    twice = [name for name, count in Counter(name for name, *_ in rows).items() if count > 1]
    if twice:
        raise DataError(f"{spec}: lists {twice[0]!r} twice; keep one of the rows")
    names = _classes(spec, rows, several)
    number = {name: label for label, name in enumerate(names)}
    parts: dict[str, list[tuple[str, Label]]] = {}
    for name, label, split in rows:
        classes = tuple(sorted(number[each] for each in label)) if several else number[label]
        parts.setdefault(split, []).append((name, classes))
    train, test, validation = _splits(spec, parts)
    files = [resolve_below(root, file) for part in (train, test, validation) for file, _ in part]
    if absent := [file for file in files if not file.is_file()]:
        raise MissingFileError(
            f"{spec}: {len(absent)} of {len(files)} files are not there, such as {absent[0]};"
            f" paths are relative to {root}"
        )
    about = set_of(spec, files[0])
    splits = [
        Records(
            ImageFiles(root, files),
            where=f"{spec}, split {split}",
            num_classes=len(names),
            image_shape=about.image_shape,
            pixel_type=about.pixel_type,
            several=several,
        )
        for split, files in (("train", train), ("test", test), ("validation", validation))
        if files
    ]
    listed = [file for part in (train, test, validation) for file, _ in part]
    listing = hashlib.sha256("\0".join(listed).encode())
    return ImageDataset(
        spec,
        *splits[:2],
        num_classes=len(names),
        image_shape=about.image_shape,
        class_names=names,
        of_files=about.of_files,
        validation=splits[2] if validation else None,
        **fingerprint(
            f"table {listing.hexdigest()}",
            names,
            about.image_shape,
            *splits,
            files=files,
        )._asdict(),
    )


def _splits(spec: str, parts: dict[str, list[Any]]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the files to train on, to test on, and those for validation, if they are others."""
    if "" in parts and len(parts) > 1:
        name = parts[""][0][0]
        raise DataError(f"{spec}: gives {name!r} no split, but others have one; give it one, too")
    if not set(parts) - {"", "train"}:
        seen: Counter[Any] = Counter()
        rest, tests = [], []
        for file, label in parts.get("", []) + parts.get("train", []):
            of = None if isinstance(label, tuple) else label
            (rest if seen[of] % HELD_OUT else tests).append((file, label))
            seen[of] += 1
        parts = {"train": rest, "test": tests}
    if "test" not in parts:
        parts["test"] = parts.pop("validation", [])
    for split in ("train", "test"):
        if not parts.get(split):
            raise DataError(f"{spec}: nothing to {split} on; list more images, or give some that split")
    return parts["train"], parts["test"], parts.get("validation", [])


def _classes(spec: str, rows: Sequence[Row], several: bool) -> tuple[str, ...]:
    """Return the names of all classes, in order."""
    names = {each for _, label, _ in rows for each in (label if several else (label,))}
    if "" in names:
        name = next(row[0] for row in rows if "" in (row[1] if several else (row[1],)))
        raise DataError(f"{spec}: gives {name!r} an empty label; name its class, or leave the row out")
    if not names:
        raise DataError(f"{spec}: no image has a label; name at least one class")
    numbers = all(name.isdecimal() for name in names)
    return named_classes(spec, sorted(names, key=_by_size if numbers else None))


def _by_size(number: str) -> tuple[int, str, str]:
    """Return what orders numbers of any length."""
    digits = number.lstrip("0")
    return len(digits), digits, number


def _read(spec: str, path: Place) -> tuple[list[Row], bool]:
    """Return the rows of a table, and whether an image may have several labels."""
    if not path.is_file():
        raise MissingFileError(f"{spec}: {path} is no file; give a .csv or .parquet file")
    suffix = Path(path.name).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(f"{spec}: ends in {suffix or 'nothing'}; expected .csv or .parquet")
    with _told(spec, path, suffix[1:]):
        columns, rows = _csv(path) if suffix == ".csv" else _parquet(path)
        labels = [name for name in ("label", "labels") if name in columns]
        if "path" not in columns or len(labels) != 1:
            raise DataError(
                f'{spec}: has the columns {", ".join(columns) or "none"}; expected "path", and "label"'
                ' (or "labels", if an image may have several)'
            )
        several = labels == ["labels"]
        entries = [
            _entry(f"{spec}, row {number}", path, row, labels[0], several)
            for number, row in enumerate(rows, start=1)
        ]
    if not entries:
        raise DataError(f"{spec}: lists no images; give each a row")
    return entries, several


@contextmanager
def _told(spec: str, path: Place, kind: str) -> Iterator[None]:
    """Turn what reading a table fails with into a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{spec}: {path} cannot be read as {kind} ({first_line(error)})") from None


def _entry(where: str, path: Place, row: dict[str, Any], label: str, several: bool) -> Row:
    """Return what a row says. DataError: it says nothing that can be used."""
    name, split = row.get("path"), row.get("split") or ""
    if not isinstance(name, str) or not name:
        raise DataError(f"{where}: has no path; give one, or leave the row out")
    if split not in ("", *SPLITS):
        raise DataError(f"{where}: split {split!r} is unknown; expected one of {', '.join(SPLITS)}")
    try:
        resolve_below(path.parent, name)
    except OSError as error:
        raise DataError(f"{where}: {error}; give paths relative to the table's folder") from None
    name = str(PurePosixPath(name))  # ./a.png is a.png
    return name, _label(where, row.get(label), several), SPLITS.get(split, "")


def _label(where: str, label: Any, several: bool) -> Any:
    """Return the name of a class, or the names of several."""
    if several:
        each = label.split(BETWEEN) if isinstance(label, str) else [] if label is None else label
        if not isinstance(each, list):
            raise DataError(
                f"{where}: labels {label!r} are no list and no text; give a list of names, or a column"
                ' "label" with one'
            )
        names = [_label(where, one, False) for one in each if str(one).strip()]
        if len(set(names)) != len(names):
            raise DataError(f"{where}: has label {names} with one twice; name each class once")
        return tuple(names)
    if isinstance(label, bool | float) or not isinstance(label, str | int):
        raise DataError(f"{where}: label {label!r} is no name and no whole number; correct it")
    return str(label).strip()


def _csv(path: Place) -> tuple[list[str], Iterable[dict[str, Any]]]:
    content = read_all(path, LONGEST)
    lines, most = max(content.count(b"\n"), content.count(b"\r")), most_of(len(content))
    if lines * ROW > min(most, MOST):
        raise ValueError(f"{lines} lines in {len(content)} bytes; so many are never needed")
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    cells = csv.reader(text, strict=True)
    columns = next(cells, [])
    _check_columns(columns)
    return columns, _rows_of(columns, cells)


def _rows_of(columns: list[str], cells: Iterable[list[str]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV file, without those that are empty. ValueError: one has too many cells."""
    for number, each in enumerate(filter(None, cells), start=1):
        if len(each) > len(columns):
            raise ValueError(f"row {number} has more cells than the head has columns")
        yield dict(zip(columns, each, strict=False))


def _parquet(path: Place) -> tuple[list[str], Iterable[dict[str, Any]]]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise OSError('pyarrow reads it: pip install "vit-parity[arrow]"') from None
    rows, nbytes = [], 0
    with open_ordinary(path) as opened:
        file = pq.ParquetFile(opened)
        columns = file.schema_arrow.names
        _check_columns(columns)
        names = [name for name in COLUMNS if name in columns]
        for batch in file.iter_batches(batch_size=AT_ONCE, columns=names):
            # a column of nothing has any number of rows
            nbytes += max(batch.nbytes, LEAST * batch.num_rows)
            if nbytes > LONGEST:
                raise OSError(f"its columns take more than {LONGEST} bytes")
            rows += batch.to_pylist()
    return columns, rows


def _check_columns(columns: Sequence[str]) -> None:
    """Check that no column is there twice, of which a reader may take either. ValueError: one is."""
    for name in COLUMNS:
        if (count := columns.count(name)) > 1:
            raise ValueError(f"{count} columns are called {name!r}; keep one")
