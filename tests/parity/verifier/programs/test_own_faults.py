"""The recorder finds its own faults: what was recorded is held to what the frameworks compute."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax

import parity
from parity.verifier.programs.aten.calls import OperatorCall
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.jaxprs import checked, loops, sketches
from parity.verifier.programs.jaxprs.rules import RULES
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import record
from parity.verifier.search.nearness import movements
from vit_config.errors import OwnFaultError

RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=(2, 8, 5, 7)).astype(np.float32)
WEIGHT = RNG.normal(size=(8, 2, 3, 3)).astype(np.float32)
X = RNG.normal(size=(3, 5)).astype(np.float32)


def grouped(weight, image):
    return lax.conv_general_dilated(image, weight, (1, 1), "VALID", feature_group_count=4)


def grouped_torch(weight, image):
    return torch.nn.functional.conv2d(image, weight, groups=4)


SIDES = (
    (grouped_torch, (torch.from_numpy(WEIGHT), torch.from_numpy(IMAGE))),
    (grouped, (WEIGHT, IMAGE)),
)


def scanned(x):
    return lax.scan(lambda c, r: (0.5 * c + r, c), jnp.zeros(5, x.dtype), x)[1]


def test_grouped_convolutions_are_equal_forward_and_backward():
    found = parity.diff(*SIDES)
    assert (found.verdict, found.backward.verdict) == ("EQUAL", "EQUAL")


@pytest.mark.parametrize("precision", ["BF16_BF16_F32", "TF32_TF32_F32", "float32", "bfloat16"])
def test_factors_that_the_program_rounds_are_not_rounded_in_its_check(precision):
    own = (lambda w, x: torch.tanh(x @ w), (torch.from_numpy(X.T), torch.from_numpy(X)))
    with jax.default_matmul_precision(precision):
        assert parity.diff(own, (lambda w, x: jnp.tanh(x @ w), (X.T, X))).verdict == "EQUAL"


def test_a_rule_that_forgets_an_argument_is_named(monkeypatch):
    monkeypatch.setitem(RULES, "reshape", lambda p, x, *_: np.reshape(x, p["new_sizes"]))
    with pytest.raises(
        OwnFaultError, match=r"the first operation that is not JAX's is reshape at test_own"
    ) as caught:
        parity.diff(*SIDES)
    assert "\n" not in str(caught.value)
    assert "please report it" in str(caught.value)


def test_a_loop_that_is_played_backwards_is_named(monkeypatch):
    read = loops.read_scan
    monkeypatch.setattr(loops, "read_scan", lambda p: read({**p, "reverse": not p["reverse"]}))
    with pytest.raises(OwnFaultError, match="not JAX's is scan"):
        parity.diff((scanned, X), (scanned, X))


def test_a_small_fault_in_a_program_that_demands_its_own_types_is_one(monkeypatch):
    def demanding(x):
        assert x.dtype == jnp.float32
        return jnp.tanh(x.astype(jnp.bfloat16)) @ x.T

    assert parity.diff((demanding, X), (demanding, X)).verdict == "EQUAL"
    monkeypatch.setitem(RULES, "tanh", lambda p, x: np.tanh(x) * (1 + 1e-11))
    with pytest.raises(OwnFaultError, match=r"not JAX's is tanh at .*, by 1\.0e-11"):
        parity.diff((demanding, X), (demanding, X))


def test_what_is_ill_conditioned_is_no_fault():
    def far(x):
        x = x + 1e6
        return (x * x).mean(-1) - x.mean(-1) ** 2

    assert parity.diff((far, X), (far, X)).verdict == "EQUAL"


def test_an_output_that_the_compiler_alone_moves_is_no_fault(monkeypatch):
    compiled = checked.compiled

    def other(closed, leaves, **how):
        run = compiled(closed, leaves, **how)
        return lambda *given: [each * (1 + 1e-6) for each in run(*given)]

    monkeypatch.setattr(checked, "compiled", other)
    assert parity.diff((scanned, X), (scanned, X)).verdict == "EQUAL"


def test_a_run_of_jax_that_fails_is_said(monkeypatch):
    def fails(*_, **how):
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(checked, "compiled", fails)
    found = parity.diff((scanned, X), (jnp.sin, X))
    assert "A: was not compared with JAX's own run, which fails: no compiler here" in found.remarks


@pytest.mark.parametrize(("by", "seen"), [(1e-6, True), (1e-13, True), (1e-16, False)])
def test_a_large_value_is_compared_by_its_sketch(by, seen):
    value = RNG.normal(size=(300, 400)).T
    sketch = sketches.sketched(value)
    other = np.array(value)
    other[7] *= 1 + 20 * by
    with jax.enable_x64(True):
        found = sketches.least_distance(sketches.sketched(jnp.asarray(other), jnp), sketch)
    assert (found > 1e-15) == seen
    assert found <= max(distance(value, other), 1e-15)
    assert sketches.is_finite(sketch)
    other[3, 5] = np.inf
    assert not sketches.is_finite(sketches.sketched(other))


def test_a_walk_of_large_values_that_errs_is_seen(monkeypatch):
    big = RNG.normal(size=(1 << 9, 1 << 8)).astype(np.float32)
    assert parity.diff((jnp.sin, big), (torch.sin, torch.from_numpy(big))).verdict == "EQUAL"
    assert parity.diff((jnp.log, big), (torch.log, torch.from_numpy(big))).verdict == "EQUAL"  # of NaN
    monkeypatch.setitem(RULES, "sin", lambda p, x, *_: np.sin(x) * (1 + 1e-9 * (x > 3)))
    with pytest.raises(OwnFaultError, match="not JAX's is sin"):
        parity.diff((jnp.sin, big), (torch.sin, torch.from_numpy(big)))


@pytest.mark.parametrize("program", [
    lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    lambda x: (jax.debug.print("{}", x[0, 0]), jnp.sin(x))[1],
])  # fmt: skip
def test_functions_on_the_host_run_once(program, capfd):
    assert parity.diff((program, X), (torch.sin, torch.from_numpy(X)), backward=False).verdict == "EQUAL"
    assert capfd.readouterr().out.count("0.") <= 1


@pytest.mark.parametrize("by", [1e-6, 1e-8])
def test_an_operation_of_torch_that_runs_again_otherwise_is_named(monkeypatch, by):
    run = OperatorCall.__call__

    def otherwise(self, operands):
        result = run(self, operands)
        return result * (1 + by) if self.func is torch.ops.aten.tanh.default else result

    monkeypatch.setattr(OperatorCall, "__call__", otherwise)
    with pytest.raises(
        OwnFaultError, match=r"its tanh at test_own_faults.py:\d+, run again on what it read, is"
    ):
        parity.diff(
            (lambda x: torch.tanh(x) @ x.T, torch.from_numpy(X)), (lambda x: jnp.tanh(x) @ x.T, X)
        )


def test_elements_that_are_moved_otherwise_are_seen(monkeypatch):
    run = OperatorCall.__call__

    def otherwise(self, operands):
        result = run(self, operands)
        return result[::-1].copy() if self.func is torch.ops.aten.permute.default else result

    monkeypatch.setattr(OperatorCall, "__call__", otherwise)
    with pytest.raises(OwnFaultError, match="its transpose at"):
        parity.diff(
            (lambda x: torch.sin(x.permute(1, 0)), torch.from_numpy(X)), (lambda x: jnp.sin(x.T), X)
        )


def test_pieces_that_do_not_know_what_they_are_pieces_of():
    """A GRU of torch's writes into what it split unsafely."""
    torch.manual_seed(1)
    cell, x = torch.nn.GRU(5, 7), torch.from_numpy(RNG.normal(size=(4, 3, 5)))
    program = record((cell, x), "A")
    assert movements(program)  # in which every operation runs again
    leaves = {op.index: program.cache[op.index] for op in program.operations if op.run is None}
    again = Program("A", program.operations, program.outputs, leaves)
    ends = [index for _, index in program.outputs]
    for index, value in again.values(ends).items():
        assert distance(program.cache[index], value) < 1e-15


def test_a_choice_that_a_nudge_changes_is_no_fault():
    x = torch.tensor([1.0, 1.0, 0.5])
    assert (
        parity.diff((lambda x: x * (x[0] == x[1]), x), (lambda x: x * (x[0] == x[1]), x.numpy())).verdict
        == "EQUAL"
    )
