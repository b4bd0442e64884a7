"""Folders of DeepSpeed: pieces of ZeRO 3 joined, whole files of other stages, damage, hostile sizes.

`saved` writes what DeepSpeed 0.19.8 wrote with two and three processes on a CPU; its own files were read
bit for bit.
"""

import sys
import time
import types
from collections import OrderedDict
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch

from parity.porting.checkpoint import read_checkpoint
from parity.porting.formats import open_container
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY
from vit_config import WeightsError
from vit_config.errors import MissingFileError

GIVEN = {"num_heads": 5, "image_size": (21, 15), "norm_eps": 1e-6, "act": "gelu", "pool": "class",
         "block": "pre_norm"}  # fmt: skip
FROZEN = ("patch_embed.proj.weight", "patch_embed.proj.bias")
NAMES = ("zero_pp_rank_{}_mp_rank_00_model_states.pt", "zero_pp_rank_{}_mp_rank_00_optim_states.pt")


@pytest.fixture
def stage(monkeypatch):
    """An object of DeepSpeed's own class, of which pickles have the name alone."""
    module = types.ModuleType("deepspeed.runtime.zero.config")
    kind = type("ZeroStageEnum", (int,), {"__module__": module.__name__})
    module.ZeroStageEnum = kind
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.zero"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return kind(3)


def pieces(value, processes):
    """A tensor as that many flat ones of one length, the last padded."""
    length = -(-value.numel() // processes)
    padded = torch.zeros(length * processes, dtype=value.dtype)
    padded[: value.numel()] = value.flatten()
    return padded.split(length)


def saved(run, state, stage, processes=3):
    folder = run / "global_step7"
    folder.mkdir(parents=True)
    (run / "latest").write_text(folder.name)
    trained = [name for name in state if name not in FROZEN]
    groups = [[n for n in trained if state[n].ndim > 1], [n for n in trained if state[n].ndim <= 1]]
    cut = {name: pieces(value, processes) for name, value in state.items()}
    for rank in range(processes):
        model = {
            "module": {"shift": torch.arange(7.0), **{name: torch.empty(0) for name in state}},
            "buffer_names": ["shift"],
            "param_shapes": [OrderedDict((n, state[n].shape) for n in group) for group in groups],
            "frozen_param_shapes": {n: state[n].shape for n in FROZEN},
            "frozen_param_fragments": {n: cut[n][rank].clone() for n in FROZEN},
            "shared_params": {"same": "norm.bias"},
        }
        flat = [torch.cat([cut[n][rank] for n in group]) for group in groups]
        states = {"zero_stage": stage, "partition_count": processes, "fp32_flat_groups": flat}
        torch.save(model, folder / NAMES[0].format(rank))
        torch.save({"optimizer_state_dict": states}, folder / NAMES[1].format(rank))
    return folder


@pytest.fixture
def state():
    return {name: torch.from_numpy(each.copy()) for name, each in arrays_of(TINY).items()}


@pytest.mark.parametrize("inside", [False, True])
def test_pieces_of_every_process_are_joined(state, stage, tmp_path, inside):
    folder = saved(tmp_path / "run", state, stage)
    source = open_container(folder if inside else folder.parent)
    assert source.kind == "torch, DeepSpeed's ZeRO 3 (3 processes)"
    expected = {**state, "shift": torch.arange(7.0), "same": state["norm.bias"]}
    assert source.tensors.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(source.tensors[name].load(), value.numpy(), err_msg=name)


def test_it_is_read_as_the_model_it_holds(state, stage, tmp_path):
    """A tensor that is no part of a model would be refused."""
    folder = saved(tmp_path / "run", state, stage, processes=2)
    for path in folder.glob("*model_states.pt"):
        content = torch.load(path, weights_only=False)
        torch.save({**content, "buffer_names": [], "shared_params": {}}, path)
    arrays = read_checkpoint(folder.parent, given=GIVEN).arrays
    for name, expected in arrays_of(TINY).items():
        np.testing.assert_array_equal(arrays[name].load(), expected)


def test_other_stages_have_whole_parameters_in_one_file(state, tmp_path):
    (tmp_path / "step").mkdir()
    torch.save({"module": state}, tmp_path / "step" / "mp_rank_00_model_states.pt")
    (tmp_path / "latest").write_text("step\n")
    assert read_checkpoint(tmp_path, given=GIVEN).place.branch == "module"
    (tmp_path / "step" / "mp_rank_01_model_states.pt").touch()
    with pytest.raises(WeightsError, match=r"cut over several devices \(mp_rank_01 beside"):
        read_checkpoint(tmp_path, given=GIVEN)


def changed(folder, which, rank, change):
    path = folder / NAMES[which].format(rank)
    content = torch.load(path, weights_only=False)
    change(content if which == 0 else content["optimizer_state_dict"])
    torch.save(content, path)


@pytest.mark.parametrize(
    ("which", "change", "said"),
    [
        (1, lambda c: c.update(partition_count=4), "of 3 processes, but 4 saved pieces"),
        (1, lambda c: c.update(partition_count=10**12), "of 3 processes, but 1000000000000 saved"),
        (1, lambda c: c.update(fp32_flat_groups=[c["fp32_flat_groups"][0].double(),
                                                 c["fp32_flat_groups"][1]]), "float32, float64"),
        (0, lambda c: c["frozen_param_fragments"].update({FROZEN[1]: torch.zeros(10).double()}),
         "pieces are of float32, float64"),
        (1, lambda c: c.update(fp32_flat_groups=[torch.zeros(3)]), "pieces of other lengths"),
        (1, lambda c: c.update(fp32_flat_groups=7), "not iterable"),
        (0, lambda c: c["param_shapes"][0].update(more=torch.Size([3])), "pieces end at value"),
        (0, lambda c: c["param_shapes"][0].update(more=(2**62, 2)), "one length is not a whole number"),
        (0, lambda c: c["param_shapes"][0].update(more=(-3,)), "one length is not a whole number"),
        (0, lambda c: c["frozen_param_shapes"].update({FROZEN[1]: (99,)}), "have 30 values, .* 99"),
        (0, lambda c: c["shared_params"].update(same="nothing"), "nothing"),
        (0, lambda c: c.pop("param_shapes"), "param_shapes"),
    ],
)  # fmt: skip
def test_damage_is_one_line(state, stage, tmp_path, which, change, said):
    folder = saved(tmp_path / "run", state, stage)
    changed(folder, which, 0, change)
    with pytest.raises((WeightsError, MissingFileError), match=said) as caught:
        open_container(folder)
    assert len(str(caught.value).splitlines()) == 1


def test_the_file_of_a_process_that_is_missing_is_asked_for(state, stage, tmp_path):
    folder = saved(tmp_path / "run", state, stage)
    (folder / NAMES[1].format(1)).unlink()
    with pytest.raises(MissingFileError, match="optim_states of 2 processes, but 3 saved pieces"):
        open_container(folder)


def test_the_newest_is_looked_for_inside_of_the_folder_alone(state, stage, tmp_path):
    saved(tmp_path / "run", state, stage)
    (tmp_path / "other").mkdir()
    for name in ("../run/global_step7", str(tmp_path / "run" / "global_step7"), "", "gone"):
        (tmp_path / "other" / "latest").write_text(name)
        with pytest.raises(MissingFileError):
            open_container(tmp_path / "other")


def test_many_parameters_of_many_tensors_take_no_time(tmp_path):
    """Each against each would be 64 million steps."""
    count, value = 8_000, torch.ones(1)
    shapes = {f"p{number}": (1,) for number in range(count)}
    torch.save({"module": {}, "param_shapes": [shapes]}, tmp_path / NAMES[0].format(0))
    states = {"partition_count": 1, "fp32_flat_groups": [value] * count}
    torch.save({"optimizer_state_dict": states}, tmp_path / NAMES[1].format(0))
    began = time.process_time()
    assert len(open_container(tmp_path).tensors) == count
    assert time.process_time() - began < 5


def test_the_whole_of_a_piece_is_counted_though_a_small_part_is_a_tensor(tmp_path):
    """Zeros, deflated: two files of 40 kB hold 40 MB each."""
    for rank in range(2):
        model = {"param_shapes": [], "frozen_param_shapes": {"f": (1,)},
                 "frozen_param_fragments": {"f": torch.zeros(10 * 2**20)}}  # fmt: skip
        states = {"partition_count": 2, "fp32_flat_groups": []}
        torch.save(model, tmp_path / "whole")
        with (
            ZipFile(tmp_path / "whole") as members,
            ZipFile(tmp_path / NAMES[0].format(rank), "w", ZIP_DEFLATED) as small,
        ):
            for name in members.namelist():
                small.writestr(name, members.read(name))
        (tmp_path / "whole").unlink()
        torch.save({"optimizer_state_dict": states}, tmp_path / NAMES[1].format(rank))
    tensor = open_container(tmp_path).tensors["f"]
    with pytest.raises(WeightsError, match=r"would make more than \d+ of tensors"):
        tensor.load()
