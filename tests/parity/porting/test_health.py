"""Oddities in weights are named, and healthy weights have none; in the types that files have."""

import ml_dtypes
import numpy as np
import pytest

from parity.cli import main
from parity.porting.formats.base import Stored
from parity.porting.reading.health import anomalies
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import write_weights

pytestmark = pytest.mark.quick


def drawn():
    return {name: each.astype(np.float32) for name, each in redrawn(TINY).items()}


def put(where, value):
    """A change of an array at a place."""

    def change(arrays):
        name, *place = where
        arrays[name][tuple(place)] = value

    return change


def copied(arrays):
    for name in [each for each in arrays if each.startswith("blocks.0.")]:
        arrays[name.replace("blocks.0.", "blocks.2.")][...] = arrays[name]


def new_head(arrays):
    head = arrays["head.weight"]
    head[...] = 0.02 * np.random.default_rng(0).standard_normal(head.shape)
    arrays["head.bias"][...] = 0


def far(arrays):
    arrays["pos_embed"][0, 4] *= 100


def new_linear(arrays):
    """As `torch.nn.Linear` draws a layer."""
    stream = np.random.default_rng(2)
    for name in ("head.weight", "head.bias"):
        arrays[name][...] = stream.uniform(-(30**-0.5), 30**-0.5, arrays[name].shape)


ALL = slice(None)
CASES = {
    "nan": (put(("blocks.1.mlp.fc1.weight", 3, 4), np.nan), "blocks.1.mlp.fc1.weight: 1 of"),
    "infinity": (put(("norm.bias", 2), -np.inf), "norm.bias: 1 of 30 values are not finite"),
    "zero rows": (put(("blocks.0.attn.qkv.weight", slice(7, 9)), 0), "2 of 90 output channels are zero,"
                  " the first is 7"),
    "zero columns": (put(("blocks.0.mlp.fc2.weight", ALL, 5), 0), "1 of 44 input channels are zero"),
    "stuck": (put(("blocks.2.attn.proj.weight", 6), 0.25), "1 of 30 output channels are stuck at one"),
    "no norm": (put(("blocks.1.norm1.weight", 9), 0), "1 of 30 channels are zero, so nothing of them"),
    "zero position": (put(("pos_embed", 0, 3), 0), "1 of 10 positions are zero, the first is 3"),
    "one row": (put(("blocks.0.mlp.fc1.weight",), np.arange(30)), "every row is the same"),
    "far position": (far, "pos_embed: row 4 has length"),
    "copied block": (copied, "blocks.2: a copy of blocks.0, value by value"),
    "new head": (new_head, "head.weight: as it was drawn"),
    "new head of torch": (new_linear, "head.weight: as it was drawn"),
    "zero head": (put(("head.weight",), 0), "head.weight: all zero, so the logits are the same"),
}  # fmt: skip


def anomalies_of(arrays, dtype=np.float32):
    return list(anomalies({name: Stored.of(each.astype(dtype)) for name, each in arrays.items()}))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_healthy_weights_have_nothing_odd(dtype):
    assert anomalies_of(drawn(), dtype) == []


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_what_is_odd_is_named(case, dtype):
    change, said = CASES[case]
    arrays = drawn()
    change(arrays)
    (one,) = anomalies_of(arrays, dtype)
    assert said in one


def test_whoever_waits_is_told_of_every_byte():
    arrays, counts = {name: Stored.of(each) for name, each in drawn().items()}, []
    assert list(anomalies(arrays, counts.append)) == []
    assert (sum(counts), len(counts)) == (sum(each.nbytes for each in arrays.values()), len(arrays))


def test_the_command_lists_them(tmp_path, capsys):
    path, arrays = tmp_path / "own.safetensors", drawn()
    write_weights(path, TINY, arrays)
    assert main(["inspect", str(path), "--health"]) == 0
    assert capsys.readouterr().out.endswith("values: nothing is odd\n")
    copied(arrays)
    far(arrays)
    write_weights(path, TINY, arrays)
    assert main(["inspect", str(path), "--health"]) == 1
    *odd, last = capsys.readouterr().out.splitlines()
    assert len(odd) == 2
    assert last.endswith("2 are odd")
    assert main(["inspect", "vit_tiny_patch16_224", "--health"]) == 2
    assert "--health goes with a checkpoint" in capsys.readouterr().err
