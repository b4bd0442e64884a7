"""A checkpoint that is replaced while it is read is refused: no tensors of two files, no bytes moved."""

import os
import shutil

import numpy as np
import pytest

from parity.porting.formats import open_container, write_hdf5
from parity.porting.writing.conversion import convert
from tests.parity.porting.formats.test_extents import HOW, source_of
from tests.support.container_files import EQUIMO, stored, write_each, write_file
from vit_config import WeightsError
from vit_config.files.lasting import check_lasting, lasting

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(5, np.float32)}
CHANGED = "changed while it was read"


def replaced(path):
    """Put a copy, of which the times are the same, in the place of a file."""
    shutil.copy2(path, path.with_name("new"))
    os.replace(path.with_name("new"), path)


def test_each_file_must_last(tmp_path):
    for kind, path in write_each(tmp_path / "every").items():
        container = open_container(path)
        replaced(path)
        with pytest.raises(WeightsError, match=CHANGED):
            check_lasting(container.files)
        for tensor in container.tensors.values() if kind != "lz4" else ():  # unpacked in memory
            if tensor.nbytes:
                with pytest.raises(WeightsError, match=CHANGED):
                    tensor.load()


def test_a_folder_must_last(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0/a").write_text("a")
    folder = lasting(tmp_path)
    check_lasting([folder])
    replaced(tmp_path / "0/a")
    with pytest.raises(WeightsError, match=CHANGED):
        check_lasting([folder])


def test_a_source_that_is_replaced_leaves_nothing(tmp_path):
    source = source_of(tmp_path)
    with pytest.raises(WeightsError, match=CHANGED):
        convert(source, to="hf", out=tmp_path / "out", progress=lambda _: replaced(source), **HOW)
    assert [each.name for each in tmp_path.iterdir()] == [source.name]


def test_a_path_made_of_a_lasting_one_is_an_ordinary_path(tmp_path):
    (tmp_path / "a").write_text("a")
    path = lasting(tmp_path / "a")
    assert path == tmp_path / "a"
    assert lasting(path).identity == path.identity
    (path.parent / "b").write_text("b")
    assert path.with_name("b").read_text() == "b"
    path.unlink()
    with pytest.raises(WeightsError, match=CHANGED):
        path.check()


@pytest.mark.parametrize("kind", ["gguf", "hdf5"])
@pytest.mark.parametrize("more", [4, -4, 32])
def test_tensors_that_are_moved(kind, more, tmp_path):
    path = tmp_path / "file"
    if kind == "gguf":
        shutil.copyfile(EQUIMO.with_name("tower1.gguf"), path)
    else:
        write_file(write_hdf5, path, stored(TENSORS))
    content = path.read_bytes()
    at = len(content) * 2 // 3
    path.write_bytes(content[:at] + bytes(max(more, 0)) + content[at - min(more, 0) :])
    with pytest.raises(WeightsError, match=r"its tensors end at|says that it ends at|ends at byte"):
        open_container(path)
