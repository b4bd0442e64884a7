"""Whether a model holds a file's numbers: what is right passes, each way to be wrong has its words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parity.testing import assert_loaded
from parity.verifier.loaded import judge
from parity.verifier.loaded.judge import _is_row
from vit_config import ConfigError, InputError, WeightsError

pytestmark = pytest.mark.quick

WIDTH, HIDDEN = 12, 23


class Block(nn.Module):
    """Queries and keys, a norm, and a layer that is not square."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)


class Net(nn.Module):
    """Blocks under a table of positions."""

    def __init__(self, depth: int = 3, rows: int = 10) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(1, rows, WIDTH).normal_(std=0.02))
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, 7)


def drawn(model: nn.Module, seed: int = 1) -> nn.Module:
    """The model as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    for each in model.state_dict().values():
        values = torch.rand(each.shape, generator=generator) ** 3 + torch.rand(1, generator=generator)
        each.copy_(values if each.is_floating_point() else torch.full_like(each, 5))
    return model


@pytest.fixture
def state():
    return {name: each.clone() for name, each in drawn(Net()).state_dict().items()}


@pytest.fixture
def model(state) -> Any:
    torch.manual_seed(0)
    model = Net()
    model.load_state_dict(state)
    return model


def states(report) -> dict[str, str]:
    return {each.name: each.state for each in report.wrong}


def test_what_is_loaded_passes(model, state):
    report = assert_loaded(model, state)
    assert report.sentence == (
        "LOADED: 27 of 27 parameters and 9 of 9 buffers hold the state dict's numbers (all bit for bit)"
    )
    wrapped = nn.ModuleDict({"net": nn.DataParallel(model)})
    prefixed = {f"state_dict.module.{name}": each for name, each in state.items()}
    assert assert_loaded(wrapped, {**prefixed, "optimizer.state.0.exp_avg": torch.ones(3)})


def test_a_lost_prefix_is_said(state):
    torch.manual_seed(0)
    report = judge(Net(), {f"module.{name}": each for name, each in state.items()})
    assert not report
    assert report.sentence.startswith("NOT LOADED: 27 of 27 parameters and 9 of 9 buffers are not")
    assert "names begin with 'module.', the model's without it: a loader" in report.to_text()
    assert states(report)["blocks.1.up.weight"] == "as initialised"


def test_a_prefix_of_one_name_is_none_of_all(state):
    state["module.head.weight"] = state.pop("head.weight")
    assert "names begin" not in judge(Net(), state).to_text()


def test_one_block_and_a_new_head_are_named(model, state):
    torch.manual_seed(0)
    model.blocks[1], model.head = Block(), nn.Linear(WIDTH, 9)
    with pytest.raises(
        AssertionError, match=r"^NOT LOADED: 10 of 27 parameters and 3 of 9 buffers"
    ) as told:
        assert_loaded(model, state)
    first = str(told.value).splitlines()[0]
    assert "blocks.1.* (as initialised)" in first
    assert "head.* (of another shape)" in first
    assert assert_loaded(model, state, apart_from=["head.*", "blocks.1.*"])
    with pytest.raises(ConfigError, match=r"heads\.\* fits no name of the model, such as pos_embed"):
        judge(model, state, apart_from=["heads.*"])
    with pytest.raises(ConfigError, match="leave some to ask for"):
        judge(model, state, apart_from=["*"])


def test_a_file_of_a_part_of_the_model(model, state):
    """A decoder of many more parameters does not hide that two of the encoder's are exchanged."""
    decoder = nn.ModuleList(nn.Linear(5, 3) for _ in range(30))
    whole = nn.ModuleDict({"encoder": model, "decoder": decoder})
    report = judge(whole, state)
    assert {each.name.split(".")[0] for each in report.wrong} == {"decoder"}
    assert judge(whole, state, apart_from=["decoder.*"])
    first, last = model.blocks[0].norm, model.blocks[2].norm
    model.blocks[0].norm, model.blocks[2].norm = last, first
    wrong = states(judge(whole, state, apart_from=["decoder.*"]))
    assert wrong["encoder.blocks.0.norm.weight"] == "other tensors of the state dict"


WRONG = {
    "exchanged": ("blocks.1.key.weight", "other tensors of the state dict"),
    "another block": ("blocks.2.up.weight", "other tensors of the state dict"),
    "rounded": ("blocks.0.up.weight", "the state dict's rounded to float16, in float32"),
    "trained": ("blocks.0.up.weight", "near the state dict's: trained since, or averaged"),
    "one number": ("head.bias", "near the state dict's: trained since, or averaged"),
    "turned": ("blocks.0.query.weight", "transposed, where the others are bit for bit"),
    "rows": ("blocks.0.query.weight", "the state dict's in another order"),
    "statistics": ("blocks.0.norm.running_mean", "as initialised"),
    "counted": ("blocks.0.norm.num_batches_tracked", "as initialised"),
}


@pytest.mark.parametrize("way", WRONG)
def test_each_way_to_be_wrong_has_its_words(model, state, way):
    name, said = WRONG[way]
    with torch.no_grad():
        tensor = model.state_dict()[name]
        new = {
            "exchanged": lambda: state["blocks.1.query.weight"],
            "another block": lambda: state["blocks.1.up.weight"],
            "rounded": lambda: tensor.half().float(),
            "trained": lambda: tensor * 1.001 + 1e-4,
            "one number": lambda: tensor + torch.eye(7)[3] * 1e-3,
            "turned": lambda: tensor.T.clone(),
            "rows": lambda: tensor.roll(1, 0),
            "statistics": lambda: torch.zeros(WIDTH),
            "counted": lambda: torch.tensor(0),
        }[way]()
        tensor.copy_(new)
    assert states(judge(model, state)) == {name: said}


def test_tensors_that_belong_into_the_model_are_missed_and_others_only_told(model, state):
    deeper = {n.replace("blocks.2", "blocks.3"): t + 1 for n, t in state.items() if "blocks.2" in n}
    report = judge(model, {**state, **deeper, "decoder.weight": torch.rand(5, 4), "mask": torch.ones(3)})
    assert not report
    assert report.outside == ("blocks.3.norm.num_batches_tracked", "decoder.weight", "mask")
    assert report.sentence.startswith(
        "NOT LOADED: 27 of 27 parameters and 9 of 9 buffers hold the state"
    )
    assert "; 10 tensors of the state dict went nowhere: blocks.3.norm.weight" in report.sentence
    bias = {name: each for name, each in state.items() if name != "head.bias"}
    no_bias: Any = Net()
    no_bias.load_state_dict(state)
    no_bias.head.bias = None
    assert judge(no_bias, bias)
    assert judge(no_bias, state).missed == ("head.bias",)


def test_types_tied_parameters_and_meta_tensors(model, state):
    halved = Net()
    halved.load_state_dict(state)
    assert "(33 cast to float16, 3 bit for bit)" in judge(halved.half(), state).sentence
    halves = {n: t.bfloat16() if t.is_floating_point() else t for n, t in state.items()}
    wide = Net()
    wide.load_state_dict(halves)
    assert "widened to float32" in judge(wide, halves).sentence
    model.head.weight = nn.Parameter(torch.empty(7, WIDTH, device="meta"))
    assert "no numbers" in judge(model, state).sentence
    tied: Any = nn.ModuleDict({"embed": nn.Embedding(7, WIDTH), "head": nn.Linear(WIDTH, 7, bias=False)})
    tied["head"].weight = tied["embed"].weight
    numbers = tied["embed"].weight.detach().clone()
    for saved in ("embed", "head"):
        assert judge(tied, {f"{saved}.weight": numbers}).findings[0].also == ("head.weight",)
    assert judge(tied, {"embed.weight": numbers, "head.weight": numbers})
    assert judge(tied, {"embed.weight": numbers, "head.weight": numbers + 1}).missed == ("head.weight",)


def test_a_position_table_is_resampled_cut_or_lost(state):
    from vit_config.numerics.resample import resample_rows

    table = np.random.default_rng(0).standard_normal((26, WIDTH)).astype(np.float32)
    made = resample_rows(table, (5, 5), (3, 3), "bicubic_antialias", 1).astype(np.float32)
    report = judge({"pos_embed": made[None], "x": table}, {"pos_embed": table[None], "x": table})
    assert report
    assert "resized: pos_embed; bicubic_antialias from 5x5 to 3x3" in report.to_text()
    cut = judge({"pos_embed": table[None, :10], "x": made}, {"pos_embed": table[None], "x": made})
    assert states(cut) == {"pos_embed": "cut"}
    longer = judge({"pos_embed": table, "x": made}, {"pos_embed": table[:20], "x": made})
    assert longer.wrong[0].words == "the first 20 of 26 rows are"


def test_bad_input_is_an_error_of_one_line(model, state, tmp_path):
    for given, file, said in (
        (3, state, "builtins.int holds no parameters"),
        (nn.ReLU(), state, "holds no parameters"),
        (model, {}, "the state dict: has no tensors"),
        (model, tmp_path / "none.pth", "no such file"),
    ):
        with pytest.raises((InputError, WeightsError, FileNotFoundError), match=said):
            assert_loaded(given, file)


def test_a_row_is_one_row_of_a_table():
    leaves = {shape: SimpleNamespace(stored=SimpleNamespace(shape=shape)) for shape in (
        (12,), (1, 12), (1, 1, 12), (2, 12), (12, 1), (1, 2, 6), ()
    )}  # fmt: skip
    assert [shape for shape, leaf in leaves.items() if _is_row(leaf)] == [(1, 12), (1, 1, 12)]
    assert not _is_row(SimpleNamespace(stored=None))
