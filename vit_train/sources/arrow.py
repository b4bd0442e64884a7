"""Sets of Hugging Face's `datasets` on disk, read by pyarrow alone: Arrow files and Parquet files."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from vit_config.errors import DataError, MissingFileError, first_line
from vit_config.files.foreign import parse_json
from vit_train.data.dataset import ImageDataset, named_classes, train_and_test
from vit_train.data.records import ImageShape, Records
from vit_train.sources.arrow_rows import ArrowRows, ParquetRows
from vit_train.sources.fingerprint import fingerprint
from vit_train.sources.place import Place, Remote, ending_in, open_ordinary, read_json, resolve_below

SHAPE: ImageShape = (None, None, 3)


def open_arrow(spec: str, path: Place) -> ImageDataset:
    """Open a folder that ``DatasetDict.save_to_disk`` wrote, or one of Parquet files as on the Hub.

    The images are the column of type Image, the labels that of type ClassLabel (the one called
    ``label`` where there are several). All images are read as RGB, or as
    a model wants them.

    Raises:
        MissingFileError: there is no such folder, or nothing of the kind in it.
        DataError: a file is damaged or lies elsewhere, a column is missing, or there is only one split.
    """
    try:
        if (path / "dataset_dict.json").is_file():
            features, rows = _saved(spec, path)
        elif path.is_dir() and ending_in(path, ".parquet"):
            features, rows = _parquet(path)
        else:
            raise MissingFileError(
                f"{spec}: {path} has neither dataset_dict.json nor Parquet files; write it by"
                f' `datasets.load_dataset(NAME).save_to_disk("{path}")`'
            )
        image, label, names = _columns(spec, features)
        splits = {
            split: Records(
                kind(path, files, image, label),
                where=f"{spec}, split {split}",
                num_classes=len(names),
                image_shape=SHAPE,
            )
            for split, (kind, files) in rows.items()
        }
        pair = train_and_test(spec, splits)
        files = [file for _, each in rows.values() for file in each]
        known = fingerprint(f"hf {image} {label}", names, SHAPE, *pair, files=files)
    except (DataError, MissingFileError):
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = first_line(error)
        raise DataError(f"{spec}: the set in {path} is damaged ({reason}); copy it again") from None
    return ImageDataset(
        spec,
        *pair,
        num_classes=len(names),
        image_shape=SHAPE,
        class_names=names,
        of_files=True,
        **known._asdict(),
    )


def _entry(where: object, content: Any, key: str, kind: Any) -> Any:
    """Return one entry of a JSON object, of the given type. ValueError: it has another type."""
    try:
        return TypeAdapter(kind).validate_python(content[key], strict=True)
    except ValidationError as error:
        raise ValueError(f"{where}, {key}: {error.errors()[0]['msg']}") from None
    except (KeyError, TypeError):
        raise ValueError(f"{where} has no entry {key!r}") from None


def _saved(spec: str, path: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return features and files of a set that `save_to_disk` wrote."""
    if isinstance(path, Remote):
        raise DataError(
            f"{spec}: Arrow files are mapped into memory, which needs a local disk; copy the set, or"
            " write it as Parquet"
        )
    features, rows = {}, {}
    file = path / "dataset_dict.json"
    for split in _entry(file, read_json(file), "splits", list[str]):
        folder = resolve_below(path, split)
        state = read_json(file := folder / "state.json")
        if isinstance(state, dict) and (state.get("_indices_data_files") or state.get("_indices_files")):
            raise DataError(
                f"{spec}: split {split} is a selection of other rows; save it again after"
                " `flatten_indices()`"
            )
        listed = _entry(file, state, "_data_files", list[dict[str, Any]])
        names = [_entry(f"{file}, _data_files", each, "filename", str) for each in listed]
        file = folder / "dataset_info.json"
        features = _same(features, _entry(file, read_json(file), "features", dict[str, Any]), file)
        rows[split] = (ArrowRows, [resolve_below(path, split, name) for name in names])
    return features, rows


def _parquet(path: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return features and files of a folder of Parquet, whose splits are in the files' names."""
    rows: dict[str, Any] = {}
    features: dict[str, Any] = {}
    for file in ending_in(path, ".parquet"):
        name = "/".join(file.relative_to(path).parts)
        if match := re.search(r"train|validation|valid|val|test", name.lower()):
            split = {"valid": "validation", "val": "validation"}.get(match[0], match[0])
            rows.setdefault(split, (ParquetRows, []))[1].append(file)
            features = _same(features, _described(file), file)
    return features, rows


def _same(features: dict[str, Any], others: dict[str, Any], file: Place) -> dict[str, Any]:
    """Return the features of all files, of which some may describe none.

    Raises:
        DataError: this file has other columns than those before, or gives a class another number.
    """
    if not features or not others:
        return features or others
    before, now = map(_known, (features, others))
    if differ := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        one, other = (str(each.get(differ[0]))[:80] for each in (now, before))
        raise DataError(
            f"{file}: describes column {differ[0]!r} as {one}, the files before it as {other}; write"
            " all by one `datasets.Features`"
        )
    return features


def _known(features: dict[str, Any]) -> dict[str, Any]:
    """Return what features say of the columns with images and labels: their types, and the classes."""
    dicts = {name: each for name, each in features.items() if isinstance(each, dict)}
    return {
        name: (each["_type"], each.get("names"))
        for name, each in dicts.items()
        if each.get("_type") in ("Image", "ClassLabel")
    }


def _described(file: Place) -> dict[str, Any]:
    """Return the features that a Parquet file describes, none if it describes none."""
    with open_ordinary(file) as opened:
        about = (pq.read_schema(opened).metadata or {}).get(b"huggingface")
    if about is None:
        return {}
    try:
        content = parse_json(about)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    info = _entry(f"{file}, metadata", content, "info", dict[str, Any])
    return _entry(f"{file}, metadata", info, "features", dict[str, Any])


def _columns(spec: str, features: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """Return the names of the image and the label column, and of the classes."""
    kinds = {name: each.get("_type") for name, each in features.items() if isinstance(each, dict)}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    if not images or not labels:
        there = ", ".join(f"{name} ({kind})" for name, kind in kinds.items()) or "none"
        raise DataError(
            f"{spec}: describes the columns {there}; expected one of type Image and one of type"
            " ClassLabel; write the set by `datasets` with these features"
        )
    label = "label" if "label" in labels else labels[0]
    names = _entry(f"feature {label!r}", features[label], "names", list[str])
    return images[0], label, named_classes(spec, names)
