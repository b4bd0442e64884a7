"""Sets of tensorflow-datasets: array_record and TFRECORD files, read at random without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import naming, read_only_builder

from vit_config.errors import DataError, MissingFileError, about, first_line
from vit_config.files.foreign import check_ordinary
from vit_train.data import digits
from vit_train.data.dataset import ImageDataset, check_classes, named_classes, train_and_test
from vit_train.data.records import ImageShape, Records
from vit_train.sources.fingerprint import fingerprint
from vit_train.sources.place import on_disk, read_json, read_text
from vit_train.sources.tfrecord import TFRecords

FORMATS = ("array_record", "tfrecord")
"""Formats that can be read, the better first: array_record has a table of contents."""
OURS = "tensorflow_datasets."
"""Prefix of the names of tfds's own classes."""


def open_tfds(spec: str, name: str, data_dir: Path) -> ImageDataset:
    """Open a set that is prepared as array_record or TFRECORD, or scikit-learn's digits.

    The set needs the features "image" (uint8) and "label" and the splits "train" and "test" (or
    "validation", used where there is no "test" or its labels are not published, as in imagenet2012).

    Args:
        name: name of the set, with a config and a version if wanted (`name/config:1.0.0`); unused
            for the digits.
        data_dir: the folder of prepared sets.

    Raises:
        MissingFileError: the set is not prepared in `data_dir`, or one of its files is gone.
        DataError: the set cannot be used; the message says why.
    """
    data_dir = Path(data_dir).absolute()
    if data_dir.exists() and not data_dir.is_dir():
        raise DataError(f"data_dir {data_dir}: is a file; name the folder of prepared sets")
    if spec == "digits":
        digits.prepare_digits(data_dir)
        name = f"digits:{digits.VERSION}"
    return _dataset(spec, _open_builder(spec, name, data_dir))


def _open_builder(spec: str, name: str, data_dir: Path) -> Any:
    """Open a prepared set without running, or having, the code that made it.

    Returns:
        A tfds builder; Any, because its declared types are wider than those it returns.
    """
    try:
        naming.parse_builder_name_kwargs(name)
    except ValueError:
        raise DataError(
            f'data set {spec!r}: {name!r} is not a name; expected "tfds:name/config:1.0.0", where'
            " config and version may be left out"
        ) from None
    _check_files(spec, data_dir / name.partition("/")[0].partition(":")[0])
    try:
        return read_only_builder.builder_from_files(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        there = sorted(path.parts[len(data_dir.parts)] for path in _prepared_in(data_dir))
        raise MissingFileError(
            f"{spec}: not prepared in {data_dir} (there: {', '.join(dict.fromkeys(there)) or 'none'});"
            " on a machine with TensorFlow run"
            f" `tfds build {name} --file_format=array_record --data_dir={data_dir}`"
        ) from None
    except Exception as error:  # tfds and protobuf have no common kind of error for damaged JSON
        reason = first_line(error)
        raise DataError(
            f"{spec}: the set in {data_dir} is damaged ({reason}); copy or prepare it again"
        ) from error


def _check_files(spec: str, folder: Path) -> None:
    """Check the files of a set, which tfds would read whatever they are, and that its features are
    tfds's own: tfds would import any module they name.

    Raises:
        DataError: a file is a device or a pipe, or one that describes the set is damaged or too long.
    """
    for file in sorted(folder.rglob("*")):
        try:
            check_ordinary(file)
            if file.name.endswith(".labels.txt"):
                read_text(file)
            todo = [read_json(file)] if file.suffix == ".json" else []
        except (OSError, ValueError) as error:
            raise DataError(f"{spec}: {about(file, error)}; copy or prepare the set again") from None
        while todo:
            node = todo.pop()
            if isinstance(node, dict):
                named = [node.get(key) for key in ("pythonClassName", "python_class_name", "type")]
                odd = [name for name in named if "." in str(name) and not str(name).startswith(OURS)]
                if odd:
                    raise DataError(
                        f"{spec}: {file} asks for {odd[0]}, which is not of tensorflow-datasets and is"
                        " not imported; prepare the set with features of its own"
                    )
            todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _prepared_in(data_dir: Path) -> list[Path]:
    return [
        path
        for pattern in ("*/*/features.json", "*/*/*/features.json")
        for path in data_dir.glob(pattern)
        if not path.parts[len(data_dir.parts)].startswith(".")
    ]


def _dataset(spec: str, builder: Any) -> ImageDataset:
    shape = _image_shape(spec, builder)
    label = builder.info.features["label"]
    if not isinstance(label, tfds.features.ClassLabel) or label.num_classes is None:
        raise DataError(
            f'{spec}: feature "label" is {label}, expected a ClassLabel, which says how many classes'
            " there are; prepare the set with one"
        )
    infos = builder.info.splits.values()
    try:
        _ = [info.filepaths for info in infos]
        if any(count < 0 for info in infos for count in info.shard_lengths):
            raise ValueError("a file of fewer than no records")
    except ValueError as error:
        raise DataError(f"{spec}: {error}; copy or prepare the set again") from None
    check_classes(spec, label.num_classes, sum(info.num_examples for info in infos))
    formats = {file_format.value for file_format in builder.info.available_file_formats()}
    chosen = next((each for each in FORMATS if each in formats), None)
    if chosen is None:
        raise DataError(
            f"{spec}: prepared in {builder.data_dir} as {', '.join(sorted(formats))}, expected"
            f" {' or '.join(FORMATS)}; on a machine with TensorFlow run `tfds convert_format"
            f" --dataset_version_dir={builder.data_dir} --out_file_format=array_record`"
        )
    splits = {}
    for split, info in builder.info.splits.items():
        if split in ("train", "test", "validation") and info.num_examples:
            splits[split] = Records(
                _raw_source(spec, builder, split, chosen),
                where=f"{spec}, split {split}",
                num_classes=label.num_classes,
                image_shape=shape,
            )
    pair = train_and_test(spec, splits, sorted(builder.info.splits))
    names = named_classes(spec, label.names)
    if len(names) != label.num_classes:
        raise DataError(
            f"{spec}: {len(names)} names of classes, features.json says {label.num_classes}; prepare the"
            " set again"
        )
    used = [path for split in ("train", "test", "validation") for path in _files(builder, split)]
    return ImageDataset(
        spec,
        *pair,
        num_classes=label.num_classes,
        image_shape=shape,
        class_names=names,
        **fingerprint(builder.info.full_name, names, shape, *pair, files=used)._asdict(),
        shuffled=True,
    )


def _image_shape(spec: str, builder: Any) -> ImageShape:
    features = builder.info.features
    names = list(features) if isinstance(features, tfds.features.FeaturesDict) else []
    for name in ("image", "label"):
        if name not in names:
            raise DataError(
                f"{spec}: has no feature {name!r}, it has {', '.join(names) or features}; expected"
                ' a classification set with "image" and "label"'
            )
    image: Any = features["image"]
    if image.np_dtype != np.uint8 or len(image.shape) != 3 or not image.shape[2]:
        raise DataError(
            f'{spec}: feature "image" is {image}; expected uint8 of shape (H, W, C) with C known;'
            " prepare the set with one"
        )
    return image.shape


def _raw_source(spec: str, builder: Any, split: str, file_format: str) -> Any:
    """Return undecoded records: tfds decodes by OpenCV if installed, to other pixels than PIL's."""
    features, info = builder.info.features, builder.info.splits[split]
    paths = _files(builder, split)
    for path in paths:
        if not path.is_file():
            raise MissingFileError(
                f"{spec}, split {split}: {path} is gone; copy or prepare the set again"
            )
    if info.num_examples > sum(map(on_disk, paths)):
        raise DataError(
            f"{spec}, split {split}: dataset_info.json says {info.num_examples} records, which its files"
            " cannot hold; copy or prepare the set again"
        )
    if file_format == "tfrecord":
        records = _tfrecords(f"{spec}, split {split}", paths, info.shard_lengths)
    else:
        raw = tfds.decode.DeserializeMethod.RAW_BYTES
        how: dict[str, Any] = {"file_format": file_format, "deserialize_method": raw}
        records = builder.as_data_source(split, **how)
    is_encoded = isinstance(features["image"], tfds.features.Image)
    decoders = {"image": tfds.decode.SkipDecoding()} if is_encoded else None
    return _Understood(records, features, decoders)


def _files(builder: Any, split: str) -> list[Path]:
    """Return the files of a split, none if there is no such split."""
    info = builder.info.splits.get(split)
    return [Path(path) for path in info.filepaths] if info else []


def _tfrecords(where: str, paths: list[Path], counts: Sequence[int]) -> TFRecords:
    try:
        records = TFRecords(paths)
    except OSError as error:
        raise DataError(f"{where}: {error}; copy or prepare the set again") from None
    except ModuleNotFoundError:
        raise DataError(
            f"{where}: google-crc32c, which checks TFRECORD files, is not installed;"
            ' pip install "vit-parity[train]"'
        ) from None
    for path, count, declared in zip(paths, records.counts, counts, strict=True):
        if count != declared:
            raise DataError(
                f"{where}: {path} has {count} records, dataset_info.json says {declared}; copy or"
                " prepare the set again"
            )
    return records


class _Understood(Sequence[Any]):
    """Records, parsed by the features of the set."""

    def __init__(self, records: Any, features: Any, decoders: Any) -> None:
        self._records, self._features, self._decoders = records, features, decoders

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        record = self._records[index]
        try:
            return self._features.deserialize_example_np(record, decoders=self._decoders)
        except Exception as error:  # protobuf and tfds have no common kind of error
            raise OSError(f"{type(error).__name__}: {error}") from None

    def name(self, index: int) -> str:
        """Return a record's name in messages."""
        own = getattr(self._records, "name", None)
        return f"record {index}" if own is None else own(index)
