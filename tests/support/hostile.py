"""Small files that would make gigabytes of themselves, by name, and what opening them takes.

`evidence/hostile.py` writes the table of docs/hostile.md of them.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from lz4.frame import BLOCKSIZE_MAX4MB, LZ4FrameCompressor

PROTO = b"\x80\x02"
MIB = 2**20
BLOCK = 24 + 15 * 2**16


def text(value: str) -> bytes:
    """A text in a pickle."""
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def named(dotted: str) -> bytes:
    """A global in a pickle."""
    module, _, name = dotted.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _torch(folder: Path, program: bytes, **members: bytes) -> Path:
    inside = {f"m/{name}": content for name, content in members.items()}
    return _zip(folder / "a.pth", {"m/data.pkl": PROTO + program + b".", **inside})


def _array(descr: str, count: int, data: bytes) -> bytes:
    number = b"J" + struct.pack("<i", count)
    dtype = named("numpy.dtype") + text(descr) + b"\x89\x88\x87R"
    size = struct.pack("<i", int(descr[1:])) if descr[0] == "S" else b"\xff\xff\xff\xff"
    dtype += b"(K\x03" + text("|") + b"NNNJ" + size + b"K\x01K\x00tb"
    made = named("numpy.core.multiarray._reconstruct") + named("numpy.ndarray") + b"K\x00\x85C\x01b\x87R"
    return (
        made
        + b"(K\x01"
        + number
        + b"\x85"
        + dtype
        + b"\x89B"
        + struct.pack("<I", len(data))
        + data
        + b"tb"
    )


def _expanded(folder: Path, count: int = 40, of: str = "t") -> Path:
    def tensor(name: str) -> bytes:
        stored = (
            b"(" + text("storage") + named("torch.FloatStorage") + text("0") + text("cpu") + b"K\x01tQ"
        )
        shape = b"J" + struct.pack("<i", 16 * MIB)
        hooks = named("collections.OrderedDict") + b")R"
        return text(name) + named("torch._utils._rebuild_tensor_v2") + (
            b"(" + stored + b"K\x00" + shape + b"\x85K\x00\x85\x89" + hooks + b"tR"
        )  # fmt: skip

    body = b"}(" + b"".join(tensor(f"{of}{number}") for number in range(count)) + b"u"
    return _torch(folder, body, **{"data/0": bytes(4)})


def _thin_shards(folder: Path) -> Path:
    """Each within the least that a file may make."""
    for number in range(9):
        _expanded(folder, 1, f"s{number}.").rename(folder / f"{number}.bin")
    places = {f"s{number}.0": f"{number}.bin" for number in range(9)}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def _members(folder: Path) -> Path:
    """A table of contents of 400,000 members, all of them the same."""
    name = b"%07d.npy"
    head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, 11, 0) + name % 0
    entry = struct.pack(
        "<4sHHHHHHIIIHHHHHII", b"PK\1\2", *(20, 20, 0, 0, 0, 33, 0, 0, 0), 11, *([0] * 6)
    )
    table = b"".join(entry + name % number for number in range(400_000))
    begin, end = len(head), len(head) + len(table)
    zip64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 400_000, 400_000, len(table), begin)
    record = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (folder / "a.npz").write_bytes(head + table + zip64 + record + last)
    return folder / "a.npz"


def _holes(folder: Path) -> Path:
    """A header that announces a tensor, and a file of that size whose bytes are not on the disk."""
    size = 2**30
    about = {"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    path = _header(folder, json.dumps(about).encode())
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)
    return path


def _entries(folder: Path) -> Path:
    """Two configs of a million entries each, and one more."""
    _beside(
        folder, "config.json", b"{" + b",".join(b'"%d":0' % each for each in range(1_000_003)) + b"}"
    )
    shutil.copy(folder / "config.json", folder / "trainer_state.json")
    return folder


def _joined(folder: Path) -> Path:
    words = named("pathlib.PurePosixPath") + b"(" + text("x" * 500_000) + b"q\x00" + b"h\x00" * 2000
    return _torch(folder, words + b"tR")


def _copies(folder: Path) -> Path:
    one = named("torch._utils._rebuild_device_tensor_from_numpy") + b"(h\x00" + named("torch.complex128")
    one += text("cpu") + b"\x89tR"
    return _torch(folder, _array("u1", MIB, bytes(MIB)) + b"q\x000](" + one * 100 + b"e")


def _texts(folder: Path) -> Path:
    return _torch(folder, _array("S1000000", 1, b"a" * 1_000_000) + b"q\x000](" + b"h\x00" * 2000 + b"e")


def _npz(folder: Path, descr: str, count: int, many: int) -> Path:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": (count,)}
    )
    content = file.getvalue() + bytes(count * np.dtype(descr).itemsize)
    return _zip(folder / "a.npz", {f"t{number}.npy": content for number in range(many)})


def _msgpack(folder: Path, one: bytes) -> Path:
    count = 8 * MIB // len(one)
    (folder / "a.msgpack").write_bytes(b"\x81\xa1a\xdd" + struct.pack(">I", count) + one * count)
    return folder / "a.msgpack"


def _header(folder: Path, content: bytes) -> Path:
    (folder / "a.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
    return folder / "a.safetensors"


def _beside(folder: Path, name: str, content: bytes) -> Path:
    _header(folder, json.dumps({"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode())
    (folder / "a.safetensors").rename(folder / "model.safetensors")
    (folder / name).write_bytes(content)
    return folder


def _legacy(folder: Path, program: bytes) -> Path:
    start = b"".join(
        pickle.dumps(each, protocol=2)
        for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    (folder / "a.pt").write_bytes(start + PROTO + program + b".")
    return folder / "a.pt"


def _zarr(folder: Path, shape: int, chunk: int) -> Path:
    """One array, whose one chunk is of zeros."""
    (folder / "w").mkdir()
    about = {"dtype": "<f4", "shape": [shape], "chunks": [chunk], "fill_value": None, "filters": None}
    about |= {"order": "C", "zarr_format": 2, "compressor": {"id": "zlib", "level": 1}}
    (folder / "w" / ".zarray").write_text(json.dumps(about))
    (folder / "w" / "0").write_bytes(zlib.compress(bytes(4 * chunk), 1))
    return folder


def _shards(folder: Path) -> Path:
    """A folder of torch.distributed.checkpoint whose one piece is announced as a gigabyte."""

    def made(kind: str, state: bytes) -> bytes:
        return named(f"torch.distributed.checkpoint.{kind}") + b")R" + state + b"b"

    def fields(**entries: bytes) -> bytes:
        return b"}(" + b"".join(text(name) + each for name, each in entries.items()) + b"u"

    none, size = b"K\x00\x85", b"J" + struct.pack("<i", 256 * MIB) + b"\x85"
    kind = made("metadata.TensorProperties", named("torch.float32") + b"N\x86")
    chunk = made("metadata.ChunkStorageMetadata", fields(offsets=none, sizes=size))
    tensor = fields(properties=kind, size=size, chunks=b"](" + chunk + b"e")
    index = made("metadata.MetadataIndex", fields(fqn=text("w"), offset=none, index=b"N"))
    place = fields(relative_path=text("__0_0.distcp"), offset=b"K\x00", length=b"K\x01")
    whole = fields(
        state_dict_metadata=fields(w=made("metadata.TensorStorageMetadata", tensor)),
        storage_data=b"}(" + index + made("filesystem._StorageInfo", place) + b"u",
    )
    (folder / ".metadata").write_bytes(PROTO + made("metadata.Metadata", whole) + b".")
    (folder / "__0_0.distcp").write_bytes(b"P")
    return folder


def _hdf5(folder: Path, root: bytes) -> Path:
    """An HDF5 file whose first group's header holds these messages, and a mebibyte behind it."""
    head = b"\x89HDF\r\n\x1a\n" + struct.pack("<8BHHI", 0, 0, 0, 0, 0, 8, 8, 0, 4, 16, 0)
    head += struct.pack("<4QQQIIQQ", 0, 2**64 - 1, MIB, 2**64 - 1, 0, 96, 0, 0, 0, 0)
    head += struct.pack("<BxHII4x", 1, 65535, 1, len(root)) + root
    again = struct.pack("<HHB3xQQ", 0x10, 16, 0, len(head), BLOCK)
    again += 15 * struct.pack("<HHB3x65528x", 0, 65528, 0)  # few messages, so that many blocks are read
    return _ended(folder / "a.h5", head + again.ljust(MIB, b"\0"))


def _ended(path: Path, content: bytes) -> Path:
    """An HDF5 file that says where it ends."""
    path.write_bytes(content[:40] + struct.pack("<Q", len(content)) + content[48:])
    return path


def _hdf5_group(folder: Path) -> Path:
    """A group whose table of names leads to itself."""
    path = _hdf5(folder, struct.pack("<HHB3xQQ", 0x11, 16, 0, 136 + MIB, 136 + MIB + 40))
    tree = struct.pack("<4sBBHQQQQ", b"TREE", 0, 1, 1, 0, 0, 0, 136 + MIB)
    heap = struct.pack("<4s4xQQQ", b"HEAP", 8, 1, 0)
    return _ended(path, path.read_bytes() + tree + heap)


def _equinox(folder: Path, leaf: bytes, count: int = 1, **config: Any) -> Path:
    """Leaves of Equinox, and arguments of Equimo's model beside them."""
    (folder / "weights.eqx").write_bytes(leaf * count)
    config = {"equimo_version": "1.1.0", "model_config": {"depths": [1], **config}}
    (folder / "metadata.json").write_text(json.dumps(config))
    return folder


def _leaf(*shape: int) -> bytes:
    """The head of an array of numpy, and no more than a number."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(4)


def _lz4(folder: Path) -> Path:
    """Blocks of 16 KiB, of which each stands for 4 MiB of one letter."""
    block = b"\x1fa\x01\x00" + b"\xff" * 16400 + b"\x00\x00"
    head = LZ4FrameCompressor(block_size=BLOCKSIZE_MAX4MB, block_linked=False).begin()
    frame = head + (struct.pack("<I", len(block)) + block) * 100
    (folder / "a.tar.lz4").write_bytes(frame + bytes(4))
    return folder


def _gguf(folder: Path, *parts: int | bytes) -> Path:
    """A GGUF of these parts, its numbers of eight bytes."""
    content = b"".join(each if isinstance(each, bytes) else struct.pack("<Q", each) for each in parts)
    (folder / "a.gguf").write_bytes(b"GGUF\x03\0\0\0" + content)
    return folder / "a.gguf"


def _of_holes(folder: Path, name: str, begin: bytes) -> Path:
    """A file of 16 GiB, of which these first bytes alone are on the disk."""
    (folder / name).write_bytes(begin)
    os.truncate(folder / name, 2**34)
    return folder / name


FILES: dict[str, Callable[[Path], Path]] = {
    "tensors of one number each": _expanded,
    "shards of one such tensor each": _thin_shards,
    "400,000 members of no bytes": _members,
    "a tensor of holes": _holes,
    "an archive of holes": lambda folder: _of_holes(folder, "a.tar.lz4", b"\x04\x22\x4d\x18"),
    "a text of holes": lambda folder: _of_holes(
        folder, "a.gguf", b"GGUF\x03\0\0\0" + struct.pack("<QQQ", 0, 1, 2**33)
    ),
    "two configs of a million entries": _entries,
    "a path of one long text again and again": _joined,
    "one array converted again and again": _copies,
    "an array of text named again and again": _texts,
    "sets": lambda folder: _torch(folder, b"\x8f" * 5_000_000),
    "dictionaries": lambda folder: _torch(folder, b"}" * 5_000_000),
    "tuples in tuples": lambda folder: _torch(folder, b"N" + b"\x85" * 5_000_000),
    "references": lambda folder: _torch(folder, b"N" + b"\x94" * 5_000_000),
    "records": lambda folder: _torch(folder, (named("a.B") + b")R") * 500_000),
    "sets, not packed": lambda folder: _legacy(folder, b"\x8f" * 6_000_000),
    "a packed byte order": lambda folder: _torch(folder, b"}", byteorder=bytes(200 * MIB)),
    "a packed pickle": lambda folder: _torch(folder, b"}" + bytes(200 * MIB)),
    "packed zeros": lambda folder: _npz(folder, "<f4", 4 * MIB, 12),
    "packed texts": lambda folder: _npz(folder, "|S1000000", 1, 200),
    "letters": lambda folder: _npz(folder, "|S1", 1_000_000, 10),
    "empty maps": lambda folder: _msgpack(folder, b"\x80"),
    "empty lists": lambda folder: _msgpack(folder, b"\x90"),
    "numbers": lambda folder: _msgpack(folder, b"\xca\0\0\0\0"),
    "an array of zeros in a folder": lambda folder: _zarr(folder, 32 * MIB, 32 * MIB),
    "a number in a chunk of zeros": lambda folder: _zarr(folder, 1, 32 * MIB),
    "a piece of a gigabyte in a shard of a byte": _shards,
    "a header that goes on in itself": lambda folder: _hdf5(
        folder, struct.pack("<HHB3xQQ", 0x10, 16, 0, 136, BLOCK)
    ),
    "a group that is in itself": lambda folder: _hdf5_group(folder),
    "leaves of a number each": lambda folder: _equinox(folder, _leaf(), 20_000),
    "a leaf of 2^44 bytes": lambda folder: _equinox(folder, _leaf(2**42)),
    "a depth of 10^15": lambda folder: _equinox(folder, _leaf(1), 9, depths=[10**15]),
    "a letter that stands for gigabytes": _lz4,
    "10^15 entries": lambda folder: _gguf(folder, 0, 10**15),
    "a text of 10^15 letters": lambda folder: _gguf(folder, 0, 1, 10**15),
    "100,000 tensors of no values": lambda folder: _gguf(
        folder, 10**5, 0, (b"\0" * 8 + b"\x01\0\0\0" + bytes(20)) * 10**5
    ),
    "a tensor of 2^44 bytes": lambda folder: _gguf(folder, 1, 0, 1, b"w\x01\0\0\0", 2**42, bytes(12)),
    "a name of 20 MB": lambda folder: _header(
        folder,
        json.dumps({"w" * 20_000_000: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}}).encode(),
    ),
    "brackets in a header": lambda folder: _header(folder, b'{"a":[' + b"[]," * 3_000_000 + b"[]]}"),
    "brackets in a config": lambda folder: _beside(
        folder, "config.json", b"[" + b"[]," * 3_000_000 + b"0]"
    ),
    "a deep config": lambda folder: _beside(folder, "config.json", b"[" * 3_000_000),
    "a number without end": lambda folder: _beside(
        folder, "config.json", b'{"a":' + b"9" * 99_999 + b"}"
    ),
}


def opened(name: str, folder: Path) -> dict[str, Any]:
    """Open a file in this process: what was said, and by how many MiB the peak of memory rose."""
    from parity.porting.formats import open_container

    path = FILES[name](folder)
    size = (
        path.stat().st_size
        if path.is_file()
        else sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    )
    before = peak()
    try:
        for tensor in open_container(path).tensors.values():
            tensor.load()
        said = ""
    except ValueError as error:
        said = str(error)
    return {"bytes": size, "said": said, "mib": peak() - before}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_a_child(*names: str) -> dict[str, dict[str, Any]]:
    """`opened` of each file, one after the other in a process of their own."""
    argv = [sys.executable, "-m", "tests.support.hostile", *names]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


def main(names: list[str]) -> None:
    """Open the named files, and print what each took as JSON."""
    entries = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            entries[name] = opened(name, Path(folder))
    print(json.dumps(entries))


if __name__ == "__main__":
    main(sys.argv[1:])
