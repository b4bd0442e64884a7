"""Images in folders, one folder a class: the layout that torchvision's ImageFolder reads."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from vit_config.errors import DataError, MissingFileError
from vit_config.images.pixels import LONGEST_FILE
from vit_train.data.dataset import ImageDataset, named_classes
from vit_train.data.records import Label, Records
from vit_train.sources.fingerprint import fingerprint
from vit_train.sources.pixels import SetOfFiles, set_of
from vit_train.sources.place import Place, files_below, folders_in, read_all, stamp_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".npy")
"""Endings of image files, in any case: torchvision's list, and NumPy's arrays."""
NO_IMAGES = (".gif", ".jfif", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".tga", ".svg")
"""Endings of pictures that torchvision's list lacks: training counts them in a note, and `parity
predict` tries to read them."""
PICTURES = (*SUFFIXES, *NO_IMAGES)
"""Endings of pictures, in any case."""
TEST_FOLDERS = ("val", "validation", "test")
"""Folders for testing: the first that exists; beside "test" the first other is for validation."""
HELD_OUT = 10
"""Without a folder for testing, one image in so many of each class is for testing, from the first on."""


class ImageFiles(Sequence[Any]):
    """Image files with labels, each read when it is asked for."""

    def __init__(self, root: Place, files: Sequence[tuple[str, Label]]) -> None:
        self.root, self.files = root, files
        stamps = [stamp_of(root / path) for path, _ in files]
        self._stamps = np.array(stamps, np.int64).reshape(-1, 2)  # taken before the fingerprint

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> Any:
        path, label = self.files[index]
        image = read_all(self.root / path, LONGEST_FILE, self._stamps[index].tolist())
        return {"image": image, "label": label}

    @property
    def labels(self) -> list[Label]:
        """The labels of all images."""
        return [label for _, label in self.files]

    def name(self, index: int) -> str:
        """Return a record's name in messages."""
        return str(self.root / self.files[index][0])


def open_folder(spec: str, path: Place) -> ImageDataset:
    """Open folders of images.

    ``PATH/train/CLASS/...`` is for training and ``PATH/val/CLASS/...`` (or validation, or test) for
    testing, or for validation where there is also a folder test; without such a folder, or with the
    classes directly in PATH, every tenth image of a class is held out for testing. Classes are numbered
    in the order of their sorted names, images in that of their sorted paths, as torchvision does; all
    are read as RGB, or as a model wants them, but bands as they are stored (`vit_config.images.bands`).
    Links are followed, but none of a class into a folder that was entered before.

    Raises:
        MissingFileError: there is no such folder.
        DataError: there are no classes, a class has no images or no usable name, or the classes to
            test on differ from those to train on.
    """
    if not path.is_dir():
        here = f" in {Path.cwd()}" if isinstance(path, Path) and not path.is_absolute() else ""
        raise MissingFileError(
            f"{spec}: {path} is no folder{here}; give --data folder:PATH, with a folder for each class"
        )
    train = path / "train" if (path / "train").is_dir() else path
    names, odd = _classes(spec, train), Counter[str]()
    files = {name: [*_images(path, train / name, odd)] for name in names}
    if empty := [name for name in names if not files[name]]:
        raise DataError(
            f"{spec}: no image in {train / empty[0]}; expected files that end in {', '.join(SUFFIXES)}"
        )
    others = [path / each for each in TEST_FOLDERS if (path / each).is_dir()] if train != path else []
    parts = {"train": files}
    if not others:
        tests = {name: files[name][::HELD_OUT] for name in names}
        rest = {name: [f for i, f in enumerate(files[name]) if i % HELD_OUT] for name in names}
        parts = {"train": rest, "test": tests}
    elif len(others) > 1 and others[-1].name == "test":
        parts |= {
            "test": _files_of(spec, path, others[-1], names, odd),
            "validation": _files_of(spec, path, others[0], names, odd),
        }
    else:
        parts["test"] = _files_of(spec, path, others[0], names, odd)
    paths = [file for part in parts.values() for name in names for file in part[name]]
    about = set_of(spec, path / paths[0])
    splits = [_records(spec, path, names, part, kind, about) for kind, part in parts.items()]
    listing = hashlib.sha256(os.fsencode("\0".join(paths)))
    return ImageDataset(
        spec,
        *splits[:2],
        num_classes=len(names),
        image_shape=about.image_shape,
        class_names=names,
        of_files=about.of_files,
        validation=splits[2] if len(splits) > 2 else None,
        notes=(_left_out(spec, odd),) if odd else (),
        **fingerprint(
            listing.hexdigest(), names, about.image_shape, *splits, files=[path / file for file in paths]
        )._asdict(),
    )


def _classes(spec: str, folder: Place) -> tuple[str, ...]:
    names = folders_in(folder)
    if not names:
        raise DataError(f"{spec}: {folder} has no folder in it; expected one for each class")
    return named_classes(spec, names)


def _left_out(spec: str, odd: Counter[str]) -> str:
    counts = ", ".join(f"{count} {ending}" for ending, count in odd.most_common())
    return (
        f"{spec}: left out {counts}: torchvision's ImageFolder reads no such files, nor does this;"
        " convert them to .png"
    )


def _files_of(
    spec: str, root: Place, folder: Place, names: tuple[str, ...], odd: Counter[str]
) -> dict[str, list[str]]:
    """Return the images of each class in a folder, which must have the classes to train on."""
    if (there := _classes(spec, folder)) != names:
        single = sorted(set(there) ^ set(names))
        raise DataError(
            f"{spec}: {folder} has {len(there)} classes, {root / 'train'} has {len(names)}; {single[0]}"
            " is in one of them only; give both the same folders"
        )
    return {name: [*_images(root, folder / name, odd)] for name in names}


def _images(root: Any, folder: Any, odd: Counter[str]) -> Iterator[str]:
    """Yield the images below a folder by their paths from `root`, in torchvision's order; count other
    pictures in `odd`, by their endings."""
    start = PurePosixPath(folder.relative_to(root))
    for inside, name in files_below(folder, PICTURES):
        if name.lower().endswith(SUFFIXES):
            yield (start / inside / name).as_posix()
        else:
            odd[PurePosixPath(name.lower()).suffix] += 1


def _records(
    spec: str,
    root: Place,
    names: tuple[str, ...],
    files: dict[str, list[str]],
    split: str,
    about: SetOfFiles,
) -> Records:
    labelled = [(file, label) for label, name in enumerate(names) for file in files[name]]
    if not labelled:
        raise DataError(f"{spec}: nothing to {split} on; give each class at least two images")
    return Records(
        ImageFiles(root, labelled),
        where=f"{spec}, split {split}",
        num_classes=len(names),
        image_shape=about.image_shape,
        pixel_type=about.pixel_type,
    )
