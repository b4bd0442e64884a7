"""What a prompt or a failing test prints of a result is one short line."""

from pathlib import Path

import numpy as np
import torch

import parity
from parity.exporting.export import Exported
from parity.twins.check import CheckReport
from parity.verifier.locate import compare
from parity.verifier.programs.sides import record
from tests.support.peers import redrawn
from tests.support.tiny import TINY
from vit_config import write_weights


def net(epsilon):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.LayerNorm(7, eps=epsilon), torch.nn.Linear(7, 5)).eval()


def test_results_are_one_short_line():
    x = torch.randn(3, 7)
    right, wrong = net(1e-5), net(1e-2)
    arrays = {name: value.numpy() for name, value in right.state_dict().items()}
    said = [
        repr(each)
        for each in (
            parity.diff((right, x), (wrong, x)),
            parity.diff((right, x), (right, x)),
            compare((right, x), (wrong, x)),
            compare((right, x), (right, x)),
            record((right, x), "A"),
            parity.match(arrays, {"other": np.ones(3), **arrays}),
        )
    ]
    assert all("\n" not in each and len(each) < 160 for each in said), said
    assert said[0].startswith("<Compared a and b: DIFFERENT; <Comparison DIFFERENT: 1 output")
    assert said[1].startswith("<Compared a and b: EQUAL")
    assert said[2].startswith("<Comparison DIFFERENT: 1 output, relative error 0.0")
    assert said[3].startswith("<Comparison EQUAL")
    assert said[5].startswith("<Matched: partners of 4 of A's 4 leaves; B has 5; 0 ambiguous")


def test_so_are_what_was_read_checked_and_exported(tmp_path):
    path = tmp_path / "tiny.safetensors"
    write_weights(path, TINY, redrawn(TINY))
    checkpoint = parity.read_checkpoint(path)
    assert repr(parity.load(path, framework="torch")).startswith("<Loaded torch ViT: ")
    assert repr(checkpoint).startswith("<Checkpoint tiny.safetensors: parity, ")
    checked = CheckReport(
        subject="tiny", config=TINY, weights="", batch="", seed=0, results=(), divergences=()
    )
    assert repr(checked) == "<CheckReport tiny: passed = True>"
    about = {"format": "onnx", "outputs": {"logits": {}, "pooled": {}}}
    made = Exported(Path("a.onnx"), Path("a.onnx.json"), about, ())
    assert repr(made) == "<Exported a.onnx: onnx, outputs logits, pooled>"
