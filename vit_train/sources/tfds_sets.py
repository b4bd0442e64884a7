"""Sets of tensorflow-datasets: array_record and TFRECORD files, read at random without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import naming, read_only_builder

from vit_config.errors import DataError, MissingFileError
from vit_train import digits
from vit_train.dataset import ImageDataset, fingerprint, train_and_test
from vit_train.records import ImageShape, Records
from vit_train.sources.tfrecord import TFRecords

FORMATS = ("array_record", "tfrecord")
"""Of files that can be read, the better first: array_record has a table of contents."""


def open_tfds(spec: str, name: str, data_dir: Path) -> ImageDataset:
    """Open a set that is prepared as array_record or TFRECORD, or scikit-learn's digits.

    It needs the features "image" (uint8) and "label" and the splits "train" and "test" (or "validation",
    used where there is no "test" or its labels are not published, as in imagenet2012).

    Args:
        name: may carry a config and a version (`name/config:1.0.0`); not looked at for the digits.
        data_dir: the folder of prepared sets.

    Raises:
        MissingFileError: the set is not prepared in `data_dir`, or one of its files is gone.
        DataError: a set that cannot be used; the message says why.
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
        A tfds builder; Any, because its declared types are wider than what it gives.
    """
    try:
        naming.parse_builder_name_kwargs(name)
    except ValueError:
        raise DataError(
            f'data set {spec!r}: {name!r} is not a name; expected "tfds:name/config:1.0.0", where'
            " config and version may be left out"
        ) from None
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
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{spec}: the set in {data_dir} is damaged ({reason}); copy or prepare it again"
        ) from error


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
    names = tuple(label.names)
    return ImageDataset(
        spec,
        *pair,
        num_classes=label.num_classes,
        image_shape=shape,
        class_names=names,
        fingerprint=fingerprint(builder.info.full_name, names, shape, *pair),
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
    """Undecoded records: tfds decodes by OpenCV where it is installed, other pixels than PIL's."""
    is_encoded = isinstance(builder.info.features["image"], tfds.features.Image)
    decoders = {"image": tfds.decode.SkipDecoding()} if is_encoded else None
    info = builder.info.splits[split]
    if file_format == "tfrecord":
        paths = [_there(spec, split, path) for path in info.filepaths]
        return _TFRecordSource(spec, split, paths, info.shard_lengths, builder.info.features, decoders)
    source = builder.as_data_source(split, decoders=decoders, file_format=file_format)
    for path in info.filepaths:
        _there(spec, split, path)
    return source


def _there(spec: str, split: str, path: Any) -> Path:
    if not Path(path).is_file():
        raise MissingFileError(f"{spec}, split {split}: {path} is gone; copy or prepare the set again")
    return Path(path)


class _TFRecordSource(Sequence[Any]):
    """Records of TFRECORD files, understood by the features of the set."""

    def __init__(
        self,
        spec: str,
        split: str,
        paths: list[Path],
        counts: Sequence[int],
        features: Any,
        decoders: Any,
    ) -> None:
        self._features, self._decoders = features, decoders
        try:
            self._records = TFRecords(paths)
        except OSError as error:
            raise DataError(f"{spec}, split {split}: {error}; copy or prepare the set again") from None
        for path, found, declared in zip(paths, self._records.counts, counts, strict=True):
            if found != declared:
                raise DataError(
                    f"{spec}, split {split}: {path} has {found} records, dataset_info.json says"
                    f" {declared}; copy or prepare the set again"
                )

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._features.deserialize_example_np(self._records[index], decoders=self._decoders)

    def name(self, index: int) -> str:
        """What messages call a record."""
        return self._records.name(index)
