"""PyTorch's files, read and written without PyTorch: every bit, and nothing executed."""

import argparse
import collections
import datetime
import os
import pathlib
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.serialization import set_crc32_options

from parity.porting.formats import open_container, write_torch
from parity.porting.formats.archive import Archive
from parity.porting.formats.budget import Budget
from tests.support.container_files import (
    EVERY,
    NARROW,
    UNSIGNED,
    arrays,
    assert_same_bits,
    bits_of,
    loaded,
    stored,
    tensor_of,
    values,
    write_file,
    write_torchscript,
)
from tests.support.refusals import one_line
from vit_config import ConfigError, WeightsError

pytestmark = pytest.mark.quick

FORMATS = {"torch": True, "torch (legacy)": False}


@pytest.fixture(params=FORMATS)
def saved(request, tmp_path):
    """``saved(value, **options)``: the container of a value that `torch.save` wrote."""

    def save(value, **options):
        path = tmp_path / "file.pt"
        torch.save(value, path, _use_new_zipfile_serialization=FORMATS[request.param], **options)
        container = open_container(path)
        assert container.kind == request.param
        return container

    return save


def assert_reads(container, tensors: dict[str, torch.Tensor]) -> None:
    arrays = loaded(container.tensors)
    assert arrays.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert arrays[name].shape == tuple(tensor.shape), name
        assert str(tensor.dtype) == f"torch.{arrays[name].dtype.name}", name
        assert arrays[name].tobytes() == bits_of(tensor), name


# Reading


class OnAnotherDevice:
    """What torch pickles of a tensor of a TPU."""

    def __reduce__(self):
        array = np.arange(6.0).reshape(2, 3)
        return torch._utils._rebuild_device_tensor_from_numpy, (array, torch.float32, "xla:0", False)


def test_a_tensor_of_another_device_is_read_as_the_array_it_is_kept_as(saved):
    assert_reads(saved({"w": OnAnotherDevice()}), {"w": torch.arange(6.0).reshape(2, 3)})


WRITTEN = [
    (format_, dtype)
    for format_ in FORMATS
    for dtype in EVERY
    if format_ != "torch (legacy)" or dtype not in (*UNSIGNED, *NARROW)
]
"""What PyTorch writes."""


@pytest.mark.parametrize(("format_", "dtype"), WRITTEN)
def test_every_type(format_, dtype, tmp_path):
    tensors = {name: tensor_of(array) for name, array in arrays(dtype).items()}
    torch.save(tensors, tmp_path / "file", _use_new_zipfile_serialization=FORMATS[format_])
    assert_reads(open_container(tmp_path / "file"), tensors)


def test_views_into_storages(saved):
    base = torch.randn(6, 10)
    tensors = {
        "transposed": base.T,
        "slice": base[2:5, 1:4],
        "row": base[3],
        "shared": base,
        "stepped": base.reshape(-1)[::3],
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "expanded": torch.ones(1, 3).expand(5, 3),
        "one by one": base[:1, :1],
        "far strides": torch.arange(3.0).as_strided((1, 1, 1, 3), (2**30, 2**30, 2**30, 1)),
        "nothing of it": base[3:3],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "no grad": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "turned": torch.randn(4, dtype=torch.complex64).reshape(2, 2).T,
    }
    assert_reads(saved(tensors), tensors)


def test_what_is_not_a_tensor(saved):
    state = {"w": torch.ones(2, dtype=torch.bfloat16)}
    container = saved(
        {
            "model": state,
            "args": argparse.Namespace(lr=0.1, name="vit", betas=(0.9, 0.95), none=None),
            "epoch": np.int64(3),
            "loss": np.float32(0.5),
            "array": np.arange(6.0).reshape(2, 3),
            "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "swapped": np.arange(3, dtype=">i4"),
            "brain": np.arange(3, dtype=ml_dtypes.bfloat16),
            "words": np.array(["ab", "c"]),
            "optimizer": {"state": {0: {"step": torch.tensor(2.0)}}, "param_groups": [{"lr": 1.0}]},
            "device": torch.device("cuda:0"),
            "dtype": torch.float32,
            "size": torch.Size([1, 2]),
            "set": {1, 2},
            "frozen": frozenset({"a"}),
            "bytes": b"abc",
            "bytearray": bytearray(b"de"),
            "complex": 1j,
            "slice": slice(1, 2),
            "range": range(3),
            "counter": collections.Counter("aab"),
            "default": collections.defaultdict(list, {"k": [1]}),
            "deque": collections.deque([1]),
            "path": pathlib.PurePosixPath("/a/b"),
            "when": datetime.datetime(2024, 5, 6, 7, 8, 9),
            "where": datetime.UTC,
            "long": 2**100,
            "nothing": {},
        }
    )
    expected = {
        "args.lr": 0.1, "args.name": "vit", "args.betas.0": 0.9, "args.betas.1": 0.95, "args.none": None,
        "epoch": 3, "loss": 0.5, "words.0": "ab", "words.1": "c", "optimizer.param_groups.0.lr": 1.0,
        "device": "cuda:0", "dtype": "torch.float32", "size.0": 1, "size.1": 2, "set.0": 1, "set.1": 2,
        "frozen.0": "a", "bytes": b"abc", "bytearray": b"de", "complex": 1j,
        "slice": "slice(1, 2, None)",
        "range": "range(0, 3)", "counter.a": 2, "counter.b": 1, "default.k.0": 1, "deque.0": 1,
        "path": "/a/b", "when": "2024-05-06 07:08:09", "long": 2**100, "nothing": {},
    }  # fmt: skip
    assert container.objects.pop("where").startswith("datetime.timezone")
    assert container.objects == expected
    tensors = loaded(container.tensors)
    assert tensors.keys() == {
        "model.w",
        "array",
        "fortran",
        "swapped",
        "brain",
        "optimizer.state.0.step",
    }
    for name in ("array", "fortran"):
        assert (tensors[name] == np.arange(6.0).reshape(2, 3)).all()
    assert tensors["swapped"].tolist() == tensors["brain"].tolist() == [0, 1, 2]
    assert tensors["brain"].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol, saved):
    value = {"model": OrderedDict(w=torch.ones(2), b=torch.zeros(3)), "n": np.arange(3.0), "s": {1, "a"}}
    container = saved(value, pickle_protocol=protocol)
    assert_same_bits(
        loaded(container.tensors),
        {"model.w": np.ones(2, np.float32), "model.b": np.zeros(3, np.float32), "n": np.arange(3.0)},
    )


def test_a_whole_module_of_pytorch_is_its_parameters(saved, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    assert_reads(saved(model), dict(model.state_dict()))
    torch.save(model, tmp_path / "oldest.pt", pickle_protocol=1)  # objects are made by another call
    assert_reads(open_container(tmp_path / "oldest.pt"), dict(model.state_dict()))


def test_attributes_of_a_tensor_are_left_out(saved):
    noted, parameter = torch.ones(2), torch.nn.Parameter(torch.zeros(3))
    noted.note, parameter.decay = "by hand", False
    assert_reads(saved({"w": noted, "p": parameter}), {"w": noted, "p": parameter})


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([{"loss": 1.0}], object), "holds a numpy array of type 'O8', which is not read; save"),
        (np.zeros(2, [("loss", "f4"), ("step", "i4")]), "holds a structured numpy array, which is not"),
    ],
)
def test_an_array_of_no_numbers_is_no_damage(saved, array, said):
    with pytest.raises(WeightsError) as caught:
        saved({"w": torch.ones(2), "history": array})
    one_line(caught.value, said, "save the tensors without it")
    assert "damaged" not in str(caught.value)


def foreign(module: str, name: str, **attributes):
    """An object of a class that is installed nowhere."""
    cls = type(name, (), {"__module__": module, "__qualname__": name})
    made = cls()
    made.__dict__.update(attributes)
    return cls, made


@pytest.mark.parametrize(
    "module",
    ["omegaconf.dictconfig", "pytorch_lightning.utilities.parsing", "transformers.training_args"],
)
def test_objects_of_known_libraries_are_records(module, saved, monkeypatch):
    cls, made = foreign(module, "Settings", depth=12, _parent=None, rates=[0.1])
    made._parent = made  # records refer to their parents
    for end, letter in enumerate(f"{module}."):
        if letter == ".":
            monkeypatch.setitem(sys.modules, module[:end], types.ModuleType(module[:end]))
    sys.modules[module].Settings = cls
    container = saved({"state_dict": {"w": torch.ones(2)}, "hyper_parameters": made, "cls": cls})
    monkeypatch.undo()
    assert list(container.tensors) == ["state_dict.w"]
    assert container.objects == {
        "hyper_parameters.depth": 12,
        "hyper_parameters.rates.0": 0.1,
        "cls": f"{module}.Settings",
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantised"),
        (lambda: torch.ones(2, device="meta"), "meta"),
        (lambda: torch.zeros(2, dtype=torch.complex32), "complex32"),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), "conjugated"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_a_plain_array_are_named(make, words, tmp_path):
    torch.save({"block": {"w": make()}}, tmp_path / "file")
    with pytest.raises(WeightsError, match=rf"block\.w is .*{words}"):
        open_container(tmp_path / "file")


def rewritten(path, change, **options) -> None:
    """The same archive with `change(name, content)` for each member."""
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members:
            archive.writestr(name, change(name, content))


def test_a_file_of_the_other_byte_order(tmp_path):
    path = tmp_path / "file"
    dtypes = ("float32", "bfloat16", "complex64", "int16", "uint8")
    expected = {name: values(name) for name in dtypes}
    torch.save({name: tensor_of(array) for name, array in expected.items()}, path)
    words = [
        array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1) for array in expected.values()
    ]

    def swap(name, content):
        if name.endswith("byteorder"):
            return b"big"
        if "/data/" in name:
            return np.frombuffer(content, f"u{words[int(name[-1])]}").byteswap().tobytes()
        return content

    rewritten(path, swap)
    assert_same_bits(loaded(open_container(path).tensors), expected)


def test_a_deflated_archive(tmp_path):
    path = tmp_path / "file"
    tensors = {"w": torch.arange(3e5), "b": torch.arange(3e5)[5:9]}
    torch.save(tensors, path)
    rewritten(path, lambda _, content: content, compression=zipfile.ZIP_DEFLATED)
    assert_reads(open_container(path), tensors)


def test_a_deflated_member_ends_where_its_size_says(tmp_path):
    """Whoever claims a hundred bytes is not unpacked beyond them, however many there are."""
    path, name = tmp_path / "file", b"archive/data/0"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name.decode(), bytes(2_000_000))
    content = bytearray(path.read_bytes())
    directory = content.rfind(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 100)
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="data/0 in the archive: more than 100 bytes"):
        Archive(path, "a PyTorch file", Budget(path, 0)).read(name.decode())


def test_a_member_may_end_where_the_file_does(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "twelve bytes")
    opened = Archive(path, "a zip file", Budget(path, 0))
    os.truncate(path, 30 + len("a") + 12)  # since it was opened
    assert opened.read("a") == b"twelve bytes"
    os.truncate(path, 30 + len("a") + 11)
    with pytest.raises(WeightsError, match="ends past the end"):
        opened.read("a")


def test_members_too_many_for_two_bytes_are_counted_before_them(tmp_path, monkeypatch):
    path = tmp_path / "file"
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a", "b"):
            archive.writestr(name, name)
    content = bytearray(path.read_bytes())
    content[-14:-10] = b"\xff" * 4  # as of 65,535 members and more
    path.write_bytes(content)
    assert Archive(path, "a PyTorch file", Budget(path, 0)).read("b") == b"b"
    content[content.rfind(b"PK\x06\x06") + 32] = 3
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="members of the archive are missing"):
        Archive(path, "a PyTorch file", Budget(path, 0))


def test_an_archive_without_checksums(tmp_path):
    set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(3)}, tmp_path / "file")
    finally:
        set_crc32_options(True)
    assert_reads(open_container(tmp_path / "file"), {"w": torch.ones(3)})


def test_torchscript(tmp_path):
    expected = write_torchscript(tmp_path / "file")
    container = open_container(tmp_path / "file")
    assert container.kind == "TorchScript"
    assert_same_bits(loaded(container.tensors), expected)
    assert container.objects["inner.training"] is True


def test_a_storage_of_another_length_is_named_with_both(tmp_path):
    torch.save({"w": torch.ones(3)}, tmp_path / "file")
    rewritten(
        tmp_path / "file", lambda name, content: content + b"more" if "/data/" in name else content
    )
    with pytest.raises(WeightsError, match=r"file/data/0 has 16 bytes, expected 3 of float32.* 12"):
        open_container(tmp_path / "file")


@pytest.mark.parametrize("length", [10, 0.5, -200, -1])
def test_a_truncated_file_is_named_with_its_size(length, tmp_path):
    path = tmp_path / "file"
    for zipped in (True, False):
        torch.save({"w": torch.ones(300)}, path, _use_new_zipfile_serialization=zipped)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * length) if length == 0.5 else length])
        with pytest.raises(WeightsError, match=r"truncated|damaged") as caught:
            open_container(path)
        if zipped or length in (-200, -1):
            assert str(path.stat().st_size) in str(caught.value)


# Writing


@pytest.mark.parametrize("options", [{}, {"mmap": True}])
def test_torch_reads_what_is_written(options, tmp_path):
    expected = arrays(*EVERY)
    written = []
    write_file(write_torch, tmp_path / "file.pth", stored(expected), written.append)
    tensors = torch.load(tmp_path / "file.pth", weights_only=True, **options)
    assert isinstance(tensors, OrderedDict)
    assert list(tensors) == list(expected)
    for name, array in expected.items():
        assert str(tensors[name].dtype) == f"torch.{array.dtype.name}", name
        assert tuple(tensors[name].shape) == array.shape, name
        assert tensors[name].is_contiguous(), name
        assert bits_of(tensors[name]) == array.tobytes(), name
    assert sum(written) == sum(array.nbytes for array in expected.values())
    assert_same_bits(loaded(open_container(tmp_path / "file.pth").tensors), expected)


def test_an_archive_like_pytorchs_own(tmp_path):
    write_file(write_torch, tmp_path / "ours", stored(arrays("float32", "bfloat16")))
    torch.save({"w": torch.ones(3)}, tmp_path / "theirs.pt")
    ours = Archive(tmp_path / "ours", "torch file", Budget(tmp_path, 0))
    theirs = Archive(tmp_path / "theirs.pt", "torch file", Budget(tmp_path, 0))
    plain = {name.split("/", 1)[1] for name in theirs.names}
    assert plain - {"data/0"} <= {name.split("/", 1)[1] for name in ours.names}
    with zipfile.ZipFile(tmp_path / "ours") as archive, (tmp_path / "ours").open("rb") as file:
        assert archive.testzip() is None
        for member in archive.infolist():
            file.seek(member.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            assert (member.header_offset + 30 + name + extra) % 64 == 0, member.filename


def test_the_same_tensors_give_the_same_file(tmp_path):
    for name in ("one", "two"):
        write_file(write_torch, tmp_path / name, stored(arrays("float32")))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_type_that_pytorch_lacks_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="w: PyTorch has no type float8_e3m4"):
        write_file(write_torch, tmp_path / "file", stored({"w": values("float8_e3m4")}))
    assert os.listdir(tmp_path) == []
