"""Images in tar files, as webdataset writes them: ``KEY.jpg`` beside ``KEY.cls`` or ``KEY.json``."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from pathlib import PurePath
from typing import IO, Any, NamedTuple

import numpy as np

from vit_config.errors import DataError, MissingFileError
from vit_config.files.foreign import parse_json, without_repeats
from vit_config.images.pixels import LONGEST_FILE
from vit_train.data.dataset import ImageDataset, check_classes, named_classes, train_and_test
from vit_train.data.records import ImageShape, Records
from vit_train.sources.fingerprint import fingerprint
from vit_train.sources.folder import SUFFIXES
from vit_train.sources.index_cache import Index, recall_index
from vit_train.sources.place import Place, ending_in, open_ordinary, read_part, read_text, stamp_of

CLASSES = "classes.txt"
"""File beside the tar files with the name of each class, one a line, in the order of the labels."""
SHAPE: ImageShape = (None, None, 3)
KEY = re.compile(r"((?:.*/)?[^./][^/.]*)\.([^/]+)")
"""The common part of the names of one sample's files, and the rest: webdataset cuts at the first dot."""
LONGEST_LABEL = 2**24
"""Most bytes of a file with a label, which may hold more about its image."""
LONGEST_HEAD = 2**18
"""Most bytes of what a head of a member says in more than 512 bytes: a long name, attributes."""
LARGEST_LABEL = 2**31 - 1
UNREADABLE = (OverflowError, RecursionError, MemoryError)
"""Errors of `tarfile` at heads of members that lie about sizes, or go on for ever."""


class TarSample(NamedTuple):
    """One image in a tar file."""

    shard: int
    offset: int
    size: int
    label: int


class _Heads:
    """A tar file as `tarfile` sees it, which reads heads alone, and would read one of any size."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """Read bytes. OSError: they are too many for the head of a member."""
        if not 0 <= size <= LONGEST_HEAD:
            raise OSError(f"a head of {size} bytes; {LONGEST_HEAD} are enough")
        return self._file.read(size)


class TarImages(Sequence[Any]):
    """Images with labels, each read at its place in a tar file when it is asked for."""

    def __init__(self, shards: Sequence[Place], samples: np.ndarray, names: Sequence[str]) -> None:
        self.shards, self.samples, self.names = list(shards), samples, list(names)
        self._stamps = [stamp_of(shard) for shard in shards]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> Any:
        shard, offset, size, label = self.samples[index].tolist()
        image = read_part(self.shards[shard], offset, size, self._stamps[shard])
        return {"image": image, "label": label}

    @property
    def labels(self) -> list[int]:
        """The labels of all images."""
        return self.samples[:, TarSample._fields.index("label")].tolist()

    def name(self, index: int) -> str:
        """Return a record's name in messages."""
        return f"{self.shards[self.samples[index][0]]}, {self.names[index]}"


def open_tar(spec: str, path: Place) -> ImageDataset:
    """Open the tar files below a folder.

    Files with ``train`` in their path are for training, those with ``val``, ``validation`` or
    ``test`` for testing, each in the order of their names. The label of ``KEY.jpg`` (or png, webp,
    ...) is the number in ``KEY.cls``, or "label" in ``KEY.json``. All images are read as RGB, or as
    a model wants them.

    Raises:
        MissingFileError: there is no such folder, or no tar file in it.
        DataError: a tar file is damaged, an image has no label or two, two images have one key, two
            classes have one name, or there is only one split.
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
    names = _class_names(spec, path)
    classes = len(names) if names else 1 + max(max(each.labels, default=-1) for each in raw.values())
    check_classes(spec, classes, sum(map(len, raw.values())))
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
        **fingerprint("tar", names, SHAPE, *pair, files=shards)._asdict(),
    )


def _split(path: PurePath) -> str | None:
    """Return the split of a file, by its name, or by the folder it lies in."""
    for part in reversed(path.parts):
        if match := re.search(r"train|validation|val|test", part.lower()):
            return match[0]
    return None


def _read(spec: str, shards: list[Place]) -> TarImages:
    index = recall_index("tar 2", shards, lambda: _index(spec, shards))
    keys = index["keys"].tobytes().decode(errors="surrogateescape")
    return TarImages(shards, index["samples"], keys.split("\0"))


def _index(spec: str, shards: list[Place]) -> Index:
    """Index every sample, and the keys of all, joined by null characters, as bytes."""
    samples, keys = [], []
    for number, shard in enumerate(shards):
        for key, (offset, size, label) in _samples(spec, shard).items():
            samples.append(TarSample(number, offset, size, label))
            keys.append(key.replace("\0", " "))
    joined = np.frombuffer("\0".join(keys).encode(errors="surrogateescape"), np.uint8)
    return {"samples": np.array(samples, np.int64).reshape(-1, len(TarSample._fields)), "keys": joined}


def _samples(spec: str, shard: Place) -> dict[str, tuple[int, int, int]]:
    """Return place, size and label of each image, by its key; images themselves are passed over."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    seen: set[str] = set()
    name = ""
    try:
        heads: Any = _Heads  # all that reading takes
        with open_ordinary(shard) as file, tarfile.open(fileobj=heads(file), mode="r:") as tar:
            for member in tar:
                tar.members = []  # pyright: ignore[reportAttributeAccessIssue] a kilobyte for each
                name = member.name
                match = KEY.fullmatch(name)
                if member.isdir() or match is None or "__MACOSX" in name.split("/"):
                    continue
                key, ending = match.groups()
                is_image = f".{ending.lower()}" in SUFFIXES
                if not is_image and ending not in ("cls", "json"):
                    continue
                _check_member(member, seen)
                if is_image and key in images:
                    raise ValueError(f"is a second image of {key}; give it a key of its own")
                if is_image:
                    if member.size > LONGEST_FILE:
                        raise ValueError(f"has {member.size} bytes, which is no image")
                    images[key] = (member.offset_data, member.size)
                    continue
                label = _label(file, member, of_json=ending == "json")
                if labels.setdefault(key, label) != label:
                    raise ValueError(f"says label {label}, the file beside it {labels[key]}")
    except (tarfile.TarError, EOFError, OSError, *UNREADABLE) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{spec}: {shard} is damaged ({reason}); copy it again") from None
    except ValueError as error:
        raise DataError(f"{spec}: {shard}, {name} {error}; correct the data set") from None
    if bare := [key for key in images if key not in labels]:
        raise DataError(
            f"{spec}: {shard}, {bare[0]}: no label beside the image; write its number into"
            f" {bare[0]}.cls, or as label into {bare[0]}.json"
        )
    return {key: (*place, labels[key]) for key, place in images.items()}


def _check_member(member: tarfile.TarInfo, seen: set[str]) -> None:
    """Check a member. ValueError: it holds no bytes of its own, or is there twice."""
    if not member.isfile() or member.issparse():
        raise ValueError("is a link, a device or a file with holes, expected one with all of its bytes")
    if member.name in seen:
        raise ValueError("is there twice")
    seen.add(member.name)


def _label(shard: IO[bytes], member: tarfile.TarInfo, *, of_json: bool) -> int:
    """Read the label that a file holds. ValueError: it holds none."""
    if member.size > LONGEST_LABEL:
        raise ValueError(f"has {member.size} bytes, which is no label")
    shard.seek(member.offset_data)
    try:
        value = parse_json(shard.read(member.size), pairs=without_repeats)
    except ValueError as error:
        raise ValueError(f"has no label ({error})") from None
    if of_json:
        if not isinstance(value, dict) or "label" not in value:
            raise ValueError('has no label (no entry "label")')
        value = value["label"]
    is_digits = isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,10}", value)
    is_whole = isinstance(value, float) and value.is_integer()
    number = int(value) if is_digits or is_whole else value
    if type(number) is not int or abs(number) > LARGEST_LABEL:
        raise ValueError(f"has label {str(value)[:80]}, expected a whole number up to {LARGEST_LABEL}")
    return number


def _class_names(spec: str, path: Place) -> tuple[str, ...] | None:
    file = path / CLASSES
    if not file.is_file():
        return None
    try:
        names = re.split("\r?\n", read_text(file))
    except (OSError, ValueError) as error:
        raise DataError(f"{spec}: {file} cannot be read ({error}); write it as UTF-8 text") from None
    return named_classes(spec, names[:-1] if names[-1] == "" else names)
