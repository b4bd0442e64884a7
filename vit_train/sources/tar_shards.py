"""Images in tar files, as webdataset writes them: ``KEY.jpg`` beside ``KEY.cls`` or ``KEY.json``."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from vit_config.errors import DataError, MissingFileError
from vit_train.dataset import ImageDataset, fingerprint, train_and_test
from vit_train.records import ImageShape, Records
from vit_train.sources.folder import SUFFIXES
from vit_train.sources.index_cache import Index, remembered
from vit_train.sources.place import Place, ending_in, read_part

CLASSES = "classes.txt"
"""Beside the tar files: the name of each class, one a line, in the order of the labels."""
SHAPE: ImageShape = (None, None, 3)
KEY = re.compile(r"((?:.*/)?[^./][^/.]*)\.([^/]+)")
"""What files of one sample have in common, and the rest: webdataset cuts at the first dot."""


class Sample(NamedTuple):
    """One image in a tar file."""

    shard: int
    offset: int
    size: int
    label: int


class TarImages(Sequence[Any]):
    """Images with labels, each read at its place in a tar file when it is asked for."""

    def __init__(self, shards: Sequence[Place], samples: np.ndarray, names: Sequence[str]) -> None:
        self.shards, self.samples, self.names = list(shards), samples, list(names)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        shard, offset, size, label = self.samples[index].tolist()
        content = read_part(self.shards[shard], offset, size)
        if len(content) < size:
            raise OSError(f"the tar file ends {size - len(content)} bytes too early")
        return {"image": content, "label": label}

    def name(self, index: int) -> str:
        """What messages call a record."""
        return f"{self.shards[self.samples[index][0]]}, {self.names[index]}"


def open_tar(spec: str, path: Place) -> ImageDataset:
    """Open the tar files below a folder.

    Those with ``train`` in their path are for training, those with ``val``, ``validation`` or ``test``
    for testing, each in the order of their names. The label of ``KEY.jpg`` (or png, webp, ...) is the
    number in ``KEY.cls``, or "label" in ``KEY.json``. All images are read as RGB, or
    as a model wants them.

    Raises:
        MissingFileError: no such folder, or no tar file in it.
        DataError: a tar file that is damaged, an image without a label, or only one split.
    """
    shards = ending_in(path, ".tar") if path.is_dir() else []
    if not shards:
        raise MissingFileError(
            f"{spec}: no tar files in {path}; write train-000000.tar, ... and val-000000.tar, ... by"
            " webdataset's ShardWriter, with a jpg and a cls for each image"
        )
    raw = {}
    for split in ("train", "test", "validation", "val"):
        own = [each for each in shards if _split(each.relative_to(path)) == split]
        if own:
            raw[split] = _read(spec, own)
    names = _class_names(path)
    classes = len(names) if names else 1 + max(_labels(each).max(initial=-1) for each in raw.values())
    splits = {
        split: Records(each, where=f"{spec}, split {split}", num_classes=classes, image_shape=SHAPE)
        for split, each in raw.items()
    }
    pair = train_and_test(spec, splits)
    return ImageDataset(
        spec,
        *pair,
        num_classes=int(classes),
        image_shape=SHAPE,
        class_names=names,
        of_files=True,
        fingerprint=fingerprint("tar", names, SHAPE, *pair),
    )


def _split(path: PurePath) -> str | None:
    """Which split a file belongs to, by its name, or the folder it lies in."""
    for part in reversed(path.parts):
        if found := re.search(r"train|validation|val|test", part.lower()):
            return found[0]
    return None


def _read(spec: str, shards: list[Place]) -> TarImages:
    index = remembered("tar 1", shards, lambda: _index(spec, shards))
    return TarImages(shards, index["samples"], index["keys"].tobytes().decode().split("\0"))


def _index(spec: str, shards: list[Place]) -> Index:
    """Every sample, and the keys of all, joined by null characters, as bytes."""
    samples, keys = [], []
    for number, shard in enumerate(shards):
        for key, (offset, size, label) in _samples(spec, shard).items():
            samples.append(Sample(number, offset, size, label))
            keys.append(key)
    joined = np.frombuffer("\0".join(keys).encode(), np.uint8)
    return {"samples": np.array(samples, np.int64).reshape(-1, len(Sample._fields)), "keys": joined}


def _samples(spec: str, shard: Place) -> dict[str, tuple[int, int, int]]:
    """Place, size and label of each image, by its key; images themselves are passed over."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with shard.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                found = KEY.fullmatch(member.name)
                if not member.isfile() or found is None or "__MACOSX" in member.name.split("/"):
                    continue
                key, ending = found.groups()
                if f".{ending.lower()}" in SUFFIXES:
                    images[key] = (member.offset_data, member.size)
                elif ending in ("cls", "json"):
                    content = tar.extractfile(member)
                    assert content is not None
                    label = json.loads(content.read())
                    labels[key] = int(label["label"] if ending == "json" else label)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{spec}: {shard} is damaged ({error}); copy it again") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{spec}: {shard}, {key}.{ending} has no label ({error})") from None
    if bare := [key for key in images if key not in labels]:
        raise DataError(
            f"{spec}: {shard}, {bare[0]}: no label beside the image; write its number into"
            f" {bare[0]}.cls, or as label into {bare[0]}.json"
        )
    return {key: (*place, labels[key]) for key, place in images.items()}


def _labels(raw: TarImages) -> np.ndarray:
    return raw.samples[:, Sample._fields.index("label")]


def _class_names(path: Place) -> tuple[str, ...] | None:
    file = path / CLASSES
    return tuple(file.read_text().split("\n")[:-1]) if file.is_file() else None
