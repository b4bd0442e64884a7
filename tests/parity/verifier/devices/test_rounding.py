"""What is judged to be more than rounding, of one operation, and the reason that is given."""

import dataclasses

import numpy as np
import pytest
import torch
from ml_dtypes import bfloat16

from parity.verifier.devices.compare import compare_devices, run_as_it_is
from parity.verifier.devices.rounding import judge
from parity.verifier.programs.sides import taken_apart


def steps_of(function, *inputs):
    return run_as_it_is(taken_apart((function, inputs), "A"), "cpu")


def drawn(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


X, W = drawn(5, 300), drawn(300, 7, seed=1)


def in_bfloat16(array):
    return array.astype(bfloat16).astype(np.float32)


def sums(rounded, order=1):
    total = np.zeros((5, 7), np.float32)
    for k in range(300)[::order]:
        total = rounded(total + X.numpy()[:, k : k + 1] * W.numpy()[k : k + 1])
    return total


GELU = torch.nn.functional.gelu
PRODUCT = (torch.matmul, X, W)
RIGHT = {
    "sums in another order": (*PRODUCT, lambda: sums(lambda x: x, -1)),
    "in float64": (*PRODUCT, lambda: (X.numpy().astype(float) @ W.numpy()).astype(np.float32)),
    "a unit in the last place": (torch.exp, X, lambda: np.nextafter(np.exp(X.numpy()), np.float32(9))),
    "GELU in float64": (GELU, 4 * X, lambda: GELU((4 * X).double()).float().numpy()),
    "infinite on both sides": (torch.log, X * 0, lambda: np.full((5, 300), -np.inf, np.float32)),
}
WRONG = {
    "its factors are rounded to bfloat16": (
        *PRODUCT, lambda: in_bfloat16(X.numpy()) @ in_bfloat16(W.numpy()),
    ),
    "as far away as sums kept in bfloat16 are": (*PRODUCT, lambda: sums(in_bfloat16)),
    "its result is rounded to bfloat16": (torch.exp, X, lambda: in_bfloat16(np.exp(X.numpy()))),
    "the tanh form of GELU": (GELU, X, lambda: GELU(X, approximate="tanh").numpy()),
    "numbers below the smallest normal one are flushed to zero": (
        torch.mul, X, torch.tensor(1e-39), lambda: np.zeros((5, 300), np.float32),
    ),
    "operands below the smallest normal one are read as zero": (
        torch.mul, X * 1e-39, torch.tensor(1e10), lambda: np.zeros((5, 300), np.float32),
    ),
    "infinite or NaN on one side only": (
        torch.exp, X, lambda: np.where(X > 1, np.inf, np.exp(X.numpy())),
    ),
    "another algorithm or approximation": (
        torch.exp, X, lambda: np.exp(X.numpy()) * np.float32(1.00001),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_what_only_rounds_otherwise_is_no_difference(case):
    function, *inputs, other = RIGHT[case]
    (step,) = steps_of(function, *inputs).steps
    assert judge(step, [np.asarray(other(), np.float32)], "") is None


@pytest.mark.parametrize("reason", WRONG)
def test_what_computes_otherwise_is_found_with_its_reason(reason):
    function, *inputs, other = WRONG[reason]
    (step,) = steps_of(function, *inputs).steps
    found = judge(step, [np.asarray(other(), np.float32)], step.signature.attributes)
    assert found is not None
    assert found.reason == reason


def program(x, w):
    return torch.softmax(torch.nn.functional.gelu(x @ w), -1)


def test_the_whole_is_different_where_no_operation_is():
    """As where a compiler fuses what alone is right."""
    a, b = steps_of(program, X, W), steps_of(program, X, W)
    same = compare_devices(a, b, settings={})
    assert (same.verdict, same.judged, same.alone) == ("EQUAL", 3, ())
    ((path, values),) = b.outputs
    other = dataclasses.replace(b, outputs=[(path, values * np.float32(1.001))])
    result = compare_devices(a, other, settings={"NAME": "1"})
    assert result.verdict == "DIFFERENT"
    text = result.to_text()
    assert text.startswith(
        "DIFFERENT  each of 3 operations alone agrees, and the whole run of B does not"
    )
    assert "NAME=1" in text
    assert result.to_dict()["outputs"][0]["apart"] > 1e-4


def test_an_operation_is_judged_on_the_numbers_of_a():
    """One that is wrong does not make those after it wrong."""
    a, b = steps_of(program, X, W), steps_of(program, X, W)
    steps = [dataclasses.replace(each) for each in b.steps]
    right = steps[0].run
    steps[0].run = lambda operands: [in_bfloat16(each) for each in right(operands)]
    result = compare_devices(a, dataclasses.replace(b, steps=steps), settings={})
    assert [(each.name, each.reason) for each in result.apart] == [
        ("matmul", "its result is rounded to bfloat16")
    ]
    text = result.to_text()
    assert "\n\n1. matmul float32" in text
    assert "test_rounding.py" in text


def test_what_has_no_counterpart_is_told():
    a = steps_of(program, X, W)
    b = steps_of(lambda x, w: torch.softmax(torch.tanh(x @ w), -1), X, W)
    result = compare_devices(a, b, settings={})
    assert result.verdict != "EQUAL"
    assert any(each.startswith("A: gelu") for each in result.alone)
    assert any(each.startswith("B: tanh") for each in result.alone)


def test_random_operations_are_not_compared():
    def noisy(x):
        return torch.nn.functional.dropout(x, 0.5, training=True) * 2

    result = compare_devices(steps_of(noisy, X), steps_of(noisy, X), settings={})
    assert result.drawn == 1
    assert "1 operation drew random numbers" in result.to_text()


def test_operands_that_share_memory_and_attention_are_compared():
    """It is tagged as random, for a dropout that it may have; what is empty holds nothing to compare."""
    row = drawn(1, 1, 8)

    def attend(x):
        x = (x + row.expand_as(x)).mul_(2)
        queries = x.as_strided((2, 4, 8), (8, 8, 1)) + torch.empty_like(x)[:2, :4].zero_()
        return torch.nn.functional.scaled_dot_product_attention(queries, queries, queries)

    result = compare_devices(
        steps_of(attend, drawn(2, 5, 8)), steps_of(attend, drawn(2, 5, 8)), settings={}
    )
    assert result.verdict == "EQUAL"
    assert result.drawn == 0
    assert result.judged >= 5
