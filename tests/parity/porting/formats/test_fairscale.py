"""Shards of fairscale's FSDP, joined; what torch's own FSDP leaves in a process is refused by name.

`saved` writes what fairscale 0.4.13 wrote with two and three processes on a CPU; its own files were read
bit for bit, and as its `consolidate_shard_weights` joins them.
"""

from zipfile import ZipFile

import numpy as np
import pytest
import torch

from parity.porting.formats import open_container
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import WeightsError
from vit_config.errors import MissingFileError


@pytest.fixture
def state():
    return {name: torch.from_numpy(array) for name, array in arrays_of(TINY).items()}


def saved(folder, state, processes=3, **changes):
    """The files of a model whose blocks are wrapped one by one, and then all of it."""
    inside = {f"blocks.{i}" for i in range(TINY.depth)}
    wrapped = {within: [n for n in state if n.startswith(f"{within}.")] for within in inside}
    wrapped[""] = [name for name in state if not name.startswith("blocks.")]
    for rank in range(processes):
        model, descriptions = {"shift": torch.arange(7.0)}, []
        for within, names in wrapped.items():
            flat = torch.cat([state[name].flatten() for name in names])
            length = -(-flat.numel() // processes)
            piece = flat[rank * length : (rank + 1) * length]
            padding = length - piece.numel()
            model[f"{within}.flat_param_0".lstrip(".")] = torch.cat([piece, torch.full((padding,), 9.0)])
            about = {"names": [name.removeprefix(f"{within}.") for name in names],
                     "shapes": [state[name].shape for name in names],
                     "numels": [state[name].numel() for name in names], "padding": padding}  # fmt: skip
            descriptions.append({"fsdp_path": within, "params": {"flat_param_0": about},
                         "no_broadcast_optim_state": False, "shared_param_info": []})  # fmt: skip
        metadata = {"param_metadata": descriptions, "buffer_names": ["shift"], **changes}
        torch.save({"model": model, "shard_metadata": metadata}, folder / f"last-shard{rank}.pt")
    return folder / "last-shard1.pt"


@pytest.mark.parametrize("processes", [2, 3])
def test_shards_are_joined(processes, state, tmp_path):
    path = saved(tmp_path, state, processes)
    container = open_container(path)
    assert container.kind == f"torch, fairscale's FSDP ({processes} processes)"
    expected = {**arrays_of(TINY), "shift": np.arange(7.0, dtype=np.float32)}
    assert container.tensors.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(container.tensors[name].load(), array, err_msg=name)


def test_missing_renamed_and_damaged_shards_are_refused(state, tmp_path):
    path = saved(tmp_path, state)
    last = tmp_path / "last-shard2.pt"
    last.rename(tmp_path / "away")
    with pytest.raises(
        WeightsError, match=r"values in 2 processes, .*; copy the files of all processes"
    ):
        open_container(path)
    (tmp_path / "away").rename(last)
    (tmp_path / "last-shard0.pt").rename(tmp_path / "alone.pt")
    with pytest.raises(MissingFileError, match=r"beside it are shards \[1, 2\]; copy the others"):
        open_container(path)
    with pytest.raises(WeightsError, match=r"alone\.pt: holds the part of one process; name the files"):
        open_container(tmp_path / "alone.pt")
    path = saved(tmp_path, state, param_metadata=[{"params": 3}])
    with pytest.raises(WeightsError, match="damaged or truncated shard of fairscale"):
        open_container(path)


def test_what_one_process_of_torch_had_is_refused_by_name(tmp_path):
    """A pickle that names the class with which FSDP's local and sharded state dicts wrap a tensor."""
    kind = "ctorch.distributed._shard.sharded_tensor.api\nShardedTensor\n"
    with ZipFile(tmp_path / "rank_0.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + kind.encode() + b".")
        archive.writestr("m/version", b"3\n")
    with pytest.raises(WeightsError, match=r"one process had \(ShardedTensor\).*FULL_STATE_DICT"):
        open_container(tmp_path / "rank_0.pt")
