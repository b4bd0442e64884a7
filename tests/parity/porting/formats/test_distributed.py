"""Folders of torch.distributed.checkpoint: pieces in several shards, damage, hostile indices."""

import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import metadata as parts

from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import WeightsError
from vit_config.errors import MissingFileError

GIVEN = {"num_heads": 5, "image_size": (21, 15), "norm_eps": 1e-6, "act": "gelu", "pool": "class",
         "block": "pre_norm"}  # fmt: skip


def saved(folder, content):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that one process saves
        dcp.save(content, checkpoint_id=folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    state = {name: torch.from_numpy(each) for name, each in arrays_of(TINY).items()}
    state["head.bias"] = state["head.bias"].bfloat16()
    content = {"model": state, "optimizer": {"step": 7}}
    return saved(tmp_path_factory.mktemp("dcp") / "step", content)


def test_it_is_read_as_the_model_it_holds(checkpoint):
    source = read_checkpoint(checkpoint, given=GIVEN)
    assert source.place.branch == "model"
    assert source.container.kind == "torch.distributed (1 shards)"
    expected = arrays_of(TINY)
    for name, stored in source.arrays.items():
        if name != "head.bias":
            np.testing.assert_array_equal(stored.load(), expected[name])


def test_pieces_of_several_shards_are_put_together(tmp_path):
    """A matrix of which two ranks hold rows, as FSDP saves it."""
    whole = torch.arange(35.0).reshape(7, 5)
    halves = [saved(tmp_path / str(i), {"w": each}) for i, each in enumerate((whole[:4], whole[4:]))]
    both = tmp_path / "both"
    both.mkdir()
    index = pickle.loads((halves[0] / ".metadata").read_bytes())
    other = pickle.loads((halves[1] / ".metadata").read_bytes())
    chunks = [
        parts.ChunkStorageMetadata(torch.Size([b, 0]), torch.Size([n, 5])) for b, n in ((0, 4), (4, 3))
    ]
    about = index.state_dict_metadata["w"]
    about.size, about.chunks = torch.Size([7, 5]), chunks
    (info,) = other.storage_data.values()
    info.relative_path = "__1_0.distcp"
    index.storage_data[parts.MetadataIndex("w", torch.Size([4, 0]), 1)] = info
    (both / ".metadata").write_bytes(pickle.dumps(index))
    for number, half in enumerate(halves):
        shutil.copy(half / "__0_0.distcp", both / f"__{number}_0.distcp")
    np.testing.assert_array_equal(open_container(both).tensors["w"].load(), whole.numpy())
    about.size = torch.Size([8, 5])
    about.chunks = [about.chunks[0], about.chunks[0]]
    (both / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(WeightsError, match="w: two of its pieces overlap"):
        open_container(both).tensors["w"].load()
    (both / "__1_0.distcp").unlink()
    with pytest.raises(MissingFileError, match=r"__1_0\.distcp: no such file"):
        open_container(both)


def test_damage_is_named(checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    shard = copy / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    shard.write_bytes(content[:-200])
    with pytest.raises(WeightsError, match="ends before byte"):
        open_container(copy)
    for place in range(0, len(content), 997):
        content[place] ^= 255
    shard.write_bytes(content)
    with pytest.raises(WeightsError, match="copy"):
        [stored.load() for stored in open_container(copy).tensors.values()]
    (copy / ".metadata").write_bytes(b"\x80\x04}.")
    with pytest.raises(WeightsError, match="no storage_data"):
        open_container(copy)
    (copy / ".metadata").unlink()
    with pytest.raises(WeightsError, match=r"give the folder, with the file \.metadata"):
        open_container(copy)


def test_an_index_that_leaves_its_folder_or_fits_no_piece_is_refused(checkpoint, tmp_path):
    index = pickle.loads((checkpoint / ".metadata").read_bytes())
    copy = shutil.copytree(checkpoint, tmp_path / "copy")

    def refused(said):
        (copy / ".metadata").write_bytes(pickle.dumps(index))
        with pytest.raises(WeightsError, match=said):
            open_container(copy)

    about = index.state_dict_metadata["model.pos_embed"]
    size, about.size = about.size, torch.Size([2**20, 10, 30])
    refused("its pieces have 300 values, the tensor 314572800")
    about.size = size
    for info in index.storage_data.values():
        info.relative_path = "../../secret"
    refused("names the file '../../secret', which is not in its folder")
