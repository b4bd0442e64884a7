"""Tensors of torch whose numbers cannot be read: a line names the side, the tensor and the place."""

import pytest
import torch
from torch import nn

import parity
from vit_config import InputError

pytestmark = pytest.mark.quick

X = torch.ones(3, 2, dtype=torch.float64)
EYE = torch.eye(3, dtype=torch.float64)
META = nn.Linear(2, 2, device="meta")


def sparse(x):
    return torch.sparse.mm(EYE.to_sparse(), x)


def nested(x):
    return torch.nested.nested_tensor([x, x]).unbind()[0]


def line_of(function):
    return function.__code__.co_firstlineno + 1


IN_A_LINE = rf"^b: a tensor is {{}}, and only dense ones are compared: make it so \({__file__}:{{}}\)$"
CASES = {
    "sparse": (
        sparse,
        X,
        IN_A_LINE.format(r"sparse \(sparse_coo\)", line_of(sparse)),
    ),
    "nested": (nested, X, IN_A_LINE.format(r"nested \(strided\)", line_of(nested))),
    "given": (
        lambda x: torch.sparse.mm(x, X),
        EYE.to_sparse_coo(),
        r"^b: the input x is sparse \(sparse_coo\), and only dense ones are compared: make it so$",
    ),
    "meta": (META, X, "^b: the parameter weight is on the device meta, so it has no numbers; give it"),
    "held meta": (lambda x: META(x), X, "^b: the parameter weight is on the device meta"),
    "given meta": (lambda x: x * 1, X.to("meta"), "^b: the input x is on the device meta"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_one_line_says_which_tensor_cannot_be_read(case):
    function, given, line = CASES[case]
    with pytest.raises(InputError, match=line):
        parity.diff((lambda x: x * 1.0, X), (function, given))


def test_gradients_that_are_sparse_are_not_compared():
    model = nn.Embedding(4, 2, sparse=True).double(), torch.tensor([1, 2])
    found = parity.diff(model, model)
    assert found.verdict == "INCOMPLETE"
    assert found.no_backward.startswith("a tensor is sparse (sparse_coo)")
