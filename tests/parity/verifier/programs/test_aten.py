"""What the recorder makes of torch's operators, beside torch: values, gradients, and what runs again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import parity
from parity.verifier.programs.aten import record as recorder
from parity.verifier.programs.aten.calls import copy_of
from parity.verifier.programs.aten.rules import DECOMPOSITIONS
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from tests.support.aten_cases import AS_THEY_ARE, SCOPE, TAKEN_APART, WRITTEN, given

ROUNDING = 32 * 2.0**-52


class Watched(dict):
    """The rules, and which of them were asked for."""

    def __init__(self, rules):
        super().__init__(rules)
        self.called = set()

    def get(self, func, default=None):
        self.called.add(func)
        return super().get(func, default)


def computed(expression: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Compute a case, and the gradients of a weighted sum of its numbers."""
    tensors = {n: each.clone().requires_grad_(each.is_floating_point()) for n, each in tensors.items()}
    result = eval(expression, SCOPE | tensors)
    outputs = {str(k): each for k, each in enumerate(result if isinstance(result, tuple) else [result])}
    if isinstance(result, list):
        outputs = {str(k): each for k, each in enumerate(result)}
    terms = [(torch.cos(torch.arange(each.numel()).reshape(each.shape).double()) * each).sum()
             for each in outputs.values() if each.requires_grad]  # fmt: skip
    if not terms:
        return outputs
    smooth = {name: each for name, each in tensors.items() if each.requires_grad}
    gradients = torch.autograd.grad(sum(terms[1:], terms[0]), list(smooth.values()), allow_unused=True)
    pairs = zip(smooth, gradients, strict=True)
    return outputs | {f"gradient of {name}": each for name, each in pairs if each is not None}


def compared(expression: str, rounding: float = ROUNDING) -> None:
    """Record a case, and hold each output to torch's, as it was recorded and as it runs again."""

    def run(tensors):
        return computed(expression, tensors)

    program = record((run, (given(),)), "A", gradients=True)
    torch.set_default_dtype(torch.float64)
    try:
        expected = run(given())
    finally:
        torch.set_default_dtype(torch.float32)
    leaves = {op.index: program.cache[op.index] for op in program.operations if op.run is None}
    again = Program("again", program.operations, program.outputs, leaves)
    ends = again.values(index for _, index in program.outputs)
    for (path, index), each in zip(program.outputs, expected.values(), strict=True):
        each = each.detach()
        for how, own in (("recorded", program.cache[index]), ("run again", ends[index])):
            assert (own.shape, own.dtype) == (each.shape, each.numpy().dtype), (expression, path)
            assert distance(each.numpy(), np.asarray(own)) <= rounding, (
                expression,
                path,
                how,
                own,
                each,
            )


def test_an_operator_that_is_taken_apart_is_what_torch_computes(monkeypatch):
    watched = Watched(DECOMPOSITIONS)
    monkeypatch.setattr(recorder, "DECOMPOSITIONS", watched)
    for each in [*TAKEN_APART, *WRITTEN]:
        compared(each)
    compared("F.hardsigmoid(3 * x)", rounding=2.0**-24)  # torch's slope is float32's 1/6 in any type
    left = [func for func in DECOMPOSITIONS if func not in watched.called and not _is_composite(func)]
    assert not left, "operators without a case"


def _is_composite(func: Any) -> bool:
    """Return whether torch itself takes an operator apart before anybody sees it."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@pytest.mark.parametrize("expression", AS_THEY_ARE)
def test_an_operator_that_is_recorded_as_it_is_is_what_torch_computes(expression):
    compared(expression)


def test_rows_that_are_masked_entirely_are_compared():
    mask = np.tri(4, dtype=bool)[:, ::-1] & (np.arange(4)[:, None] > 0)
    x = np.random.default_rng(2).normal(size=(1, 1, 4, 3))

    def attention(x, mask):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)

    def port(x, mask):
        scores = jnp.where(mask, x @ x.swapaxes(-1, -2) / np.sqrt(3), -1e300)
        return jnp.where(mask.any(-1, keepdims=True), jax.nn.softmax(scores), 0.0) @ x

    sides = (attention, (torch.from_numpy(x), torch.from_numpy(mask.copy()))), (port, (x, mask))
    found = parity.diff(*sides)
    assert (found.verdict, found.backward.verdict) == ("EQUAL", "EQUAL")


def test_the_end_of_a_slice_that_has_none_is_no_attribute():
    program = record((lambda x: x[1:] * 2, torch.arange(5.0)), "A")
    (cut,) = (op for op in program.operations if op.name == "slice")
    assert cut.label == "dim=0, start=1"


def test_whole_numbers_copied_into_fractions_are_no_cast():
    assert copy_of(torch.zeros(2), torch.zeros(2, dtype=torch.int64)) is None
    assert copy_of(torch.zeros(2), torch.zeros(2, dtype=torch.float64)) is not None
