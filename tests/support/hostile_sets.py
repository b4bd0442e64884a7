"""Small data sets that lie, by name, with a part of what is said of each.

`evidence/hostile.py` counts them in docs/hostile.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.support.hostile import peak
from tests.support.small_sets import (
    GIB,
    IMAGE,
    LABEL,
    Build,
    a_label,
    a_label_with_holes,
    a_link_out,
    a_member,
    a_name_with_holes,
    a_row,
    an_image,
    black_png,
    features,
    folders,
    in_arrow,
    in_folders,
    in_parquet,
    in_tar,
    name_classes,
    name_no_text,
    of_nothing,
    picture,
    says,
    tars,
    with_holes,
)

NO = {"bytes": None, "path": None}
DEEP = "[" * 200_000
REFUSED: dict[str, tuple[str, Build]] = {
    # images
    "a PNG of 3.6 thousand million pixels": ("pixels", an_image(black_png(60000, 1))),
    "a PNG of 81 million zeros": ("9000 x 9000 pixels", an_image(black_png(9000, 9000))),
    "a PNG of three million rows of one pixel": ("1 x 3000000", an_image(black_png(1, 3_000_000))),
    "a PPM that claims pixels": ("pixels", an_image(b"P6 100000 100000 255\n")),
    "a program for a printer": (
        "cannot identify",
        an_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    ),
    "a pipe for an image": ("pipe", folders(lambda dog: os.mkfifo(dog / "b.png"))),
    "a device for an image": ("device", folders(lambda dog: (dog / "b.png").symlink_to("/dev/zero"))),
    "an image of 4 GiB of nothing": ("bytes", folders(lambda dog: with_holes(dog / "b.png", 4 * GIB))),
    "a class that is no text": ("not UTF-8", folders(name_no_text)),
    # tar files
    "a file twice": ("is there twice", tars([("a.cls", b"1")])),
    "two images of a key": ("second image of a", tars({"a.jpeg": picture()})),
    "two labels of a key": ("says label 1, the file beside it 0", tars({"a.json": b'{"label": 1}'})),
    "a label of 0.5": ("has label 0.5", a_label(b"0.5")),
    "a label that is true": ("has label True", a_label(b'{"label": true}', "json")),
    "a label without end": ("has label inf", a_label(b"1e999")),
    "a label given twice": ("label is given twice", a_label(b'{"label": 1, "label": 0}', "json")),
    "a label of a thousand million": ("1000000001 classes of 5 images", a_label(b"1000000000")),
    "a label of 40 digits": ("expected a whole number", a_label(b"7" * 40)),
    "a label of 9,000 digits": ("has no label", a_label(b"7" * 9000)),
    "a deep label": ("too deep", a_label(DEEP.encode(), "json")),
    "a list of labels": ("no entry", a_label(b"[1]", "json")),
    "a label of 8 GiB of nothing": ("holes", a_label_with_holes),
    "a name of 8 GiB of nothing": ("a head of 8589934080 bytes", a_name_with_holes),
    "a link for an image": ("link", a_member(type=tarfile.SYMTYPE, linkname="/etc/hostname")),
    "an image of more bytes than there are": ("bytes", a_member(size=2**40)),
    "a pipe for a tar file": ("pipe", tars({}, lambda made: os.mkfifo(made / "train-1.tar"))),
    "two classes of one name": ("called 'x'", tars({}, lambda made: name_classes(made, b"x\nx\n"))),
    "two classes of one look": (
        "called 'é'",
        tars({}, lambda made: name_classes(made, "\u00e9\ne\u0301 \n".encode())),
    ),
    "classes that are no text": ("UTF-8", tars({}, lambda made: name_classes(made, b"\xff\n\xfe\n"))),
    # Arrow
    "splits that are a number": ("splits", says("dataset_dict.json", '{"splits": 2}')),
    "no splits": ("no entry 'splits'", says("dataset_dict.json", "[]")),
    "deep splits": ("too deep", says("dataset_dict.json", DEEP)),
    "a split that lies elsewhere": ("not below", says("dataset_dict.json", '{"splits": ["../x"]}')),
    "a file that lies elsewhere": (
        "not below",
        says("train/state.json", '{"_data_files": [{"filename": "../../0.arrow"}]}'),
    ),
    "a file of the machine": (
        "not below",
        says("train/state.json", '{"_data_files": [{"filename": "/etc/passwd"}]}'),
    ),
    "a list of numbers for files": ("_data_files", says("train/state.json", '{"_data_files": [1]}')),
    "a state that is no text": ("utf-8", says("train/state.json", b"\xff\xfe")),
    "features that are a list": ("features", says("test/dataset_info.json", '{"features": []}')),
    "classes without names": (
        "no entry 'names'",
        features({"image": IMAGE, "label": {"_type": "ClassLabel"}}),
    ),
    "other classes to test on": (
        "describes column 'label'",
        features({"image": IMAGE, "label": {**LABEL, "names": ["dog", "cat"]}}, "test"),
    ),
    "a hundred million rows of nothing": ("would make", of_nothing),
    "a column that is not there": ("there 0 times", features({"other": IMAGE, "label": LABEL})),
    "noise for rows": ("damaged", says("train/0.arrow", b"\xf7" * 999)),
    "no rows at all": ("damaged", says("train/0.arrow", b"")),
    "an image of the machine": ("not below", a_row({"bytes": None, "path": "/etc/hostname"})),
    "an image above the set": ("not below", a_row({"bytes": None, "path": "../x.png"})),
    "a link to an image of the machine": ("is a link", a_link_out),
    "an image that is nowhere": ("neither the bytes nor the path", a_row(NO)),
    "an image of text": ("expected a struct", a_row("pixels")),
    "an image of numbers": ("expected a struct", a_row([1, 2])),
    "bytes of text": ("expected a struct", a_row({"bytes": "pixels", "path": None})),
    "a column of 0.5": ("expected an integer", a_row({"bytes": picture(), "path": None}, 0.5)),
    "a column of truths": ("expected an integer", a_row({"bytes": picture(), "path": None}, True)),
    "zeros, packed": (
        "do not trust it",
        lambda folder: in_arrow(
            folder, [{"image": {"bytes": bytes(2**26 + 2**23), "path": None}, "label": 0}], packed="zstd"
        ),
    ),
    # Parquet
    "metadata that is a list": ("no entry 'info'", lambda folder: in_parquet(folder, b"[]")),
    "deep metadata": ("too deep", lambda folder: in_parquet(folder, DEEP.encode())),
    "metadata that is no text": ("utf-8", lambda folder: in_parquet(folder, b"\xff")),
    "one image again and again": ("do not trust it", lambda folder: in_parquet(folder, repeated=80)),
}
READ: dict[str, Build] = {
    "a class that is a link to its parent": lambda folder: in_folders(
        folder,
        lambda dog: [(dog.parent.parent / split / "owl").symlink_to("..") for split in ("train", "val")],
    ),
    "an image whose name is no text": lambda folder: in_folders(
        folder, lambda dog: (dog / "a.png").rename(os.fsdecode(os.fsencode(dog) + b"/\xff.png"))
    ),
    "a key that is no text": lambda folder: in_tar(
        folder, {os.fsdecode(b"\xff.png"): picture(), os.fsdecode(b"\xff.cls"): b"1"}
    ),
    "labels as JSON writes them": lambda folder: in_tar(
        folder, {"c.png": picture(), "c.cls": b"1.0", "c.json": b'{"label": "1"}'}
    ),
    "an image below the set": lambda folder: in_arrow(
        folder,
        [{"image": {"bytes": None, "path": "x/0.png"}, "label": 0}] * 2,
        lambda made: ((made / "x").mkdir(), (made / "x" / "0.png").write_bytes(picture())),
    ),
    "packed rows": lambda folder: in_arrow(folder, packed="lz4"),
}


def opened(name: str, folder: Path) -> dict[str, Any]:
    """Open a set and read it whole: what was said, and by how many MiB the peak of memory rose."""
    from vit_config.errors import USER_ERRORS
    from vit_train.sources.opening import open_dataset

    spec = (REFUSED[name][1] if name in REFUSED else READ[name])(folder)
    before = peak()
    try:
        dataset = open_dataset(spec, folder)
        for split in (dataset.train, dataset.test):
            for index in range(len(split)):
                _ = split[index]
        said = ""
    except USER_ERRORS as error:
        said = str(error)
    return {"kind": spec.partition(":")[0], "said": said, "mib": peak() - before}


def opened_sets() -> dict[str, dict[str, Any]]:
    """`opened` of all of them, in a process of their own, which prints nothing else."""
    argv = [sys.executable, "-m", __name__]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300)
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    """Open them all in this process, and print what each took as JSON."""
    import vit_train.sources.arrow  # noqa: F401  before memory is measured
    from vit_config.terminal import keep_libraries_silent

    keep_libraries_silent()
    entries = {}
    for name in (*REFUSED, *READ):
        with tempfile.TemporaryDirectory() as folder:
            entries[name] = opened(name, Path(folder))
    json.dump(entries, sys.stdout)


if __name__ == "__main__":
    main()
