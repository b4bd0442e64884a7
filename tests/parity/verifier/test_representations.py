"""What a prompt or a failing test prints of a result is one short line."""

import numpy as np
import torch

import parity
from parity.verifier.locate import compare
from parity.verifier.programs.sides import record


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
