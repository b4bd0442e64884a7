"""Every primitive that the walk of a jaxpr knows, beside JAX: values, and gradients through it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch  # noqa: F401 - whose erf is used where it is loaded

from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.jaxprs.checked import JaxRun
from parity.verifier.programs.jaxprs.record import record_jax
from parity.verifier.programs.jaxprs.rules import RULES
from parity.verifier.programs.program import Program
from tests.support.primitives import CASES, GIVEN, OTHERS, SCOPE, SMOOTH, names_of

WITHOUT_GRADIENTS = ("nextafter",)
ROUNDING = 32 * 2.0**-52


def computed(expression: str, given: dict[str, Any], *, gradients: bool) -> Any:
    """Compute a case, and the gradients of a weighted sum of its numbers."""
    code = compile(expression, expression, "eval")
    names = names_of(expression)

    def run(smooth: dict[str, Any]) -> Any:
        return eval(code, SCOPE | {name: given[name] for name in names} | smooth)

    def loss(smooth: dict[str, Any]) -> Any:
        total = jnp.zeros((), np.float64)
        for each in jax.tree.leaves(run(smooth)):
            if jnp.issubdtype(each.dtype, jnp.inexact):
                weighted = jnp.cos(jnp.arange(each.size).reshape(each.shape)) * each
                total += (jnp.real(weighted) + jnp.imag(weighted)).sum()
        return total

    smooth = {name: given[name] for name in names if name in SMOOTH}
    return run({}), jax.grad(loss)(smooth) if gradients and smooth else ()


def test_every_rule_has_cases():
    assert set(CASES) == set(RULES)


def compared(expressions: list[str], *, gradients: bool) -> Program:
    """Record a program of several cases, and hold each of its outputs to what JAX computes."""

    def run(given):
        return {each: computed(each, given, gradients=gradients) for each in expressions}

    program = record_jax(run, [("input", "", GIVEN)])
    expected = jax.tree_util.tree_leaves_with_path(jax.jit(run)(GIVEN))
    for (_, index), (path, each) in zip(program.outputs, expected, strict=True):
        own, each = program.cache[index], np.asarray(each)
        if "float" in each.dtype.name:
            each = each.astype(np.float64)
        assert (own.shape, own.dtype) == (each.shape, each.dtype), path
        assert distance(own, each) <= ROUNDING, (path, own, each)
    return program


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_what_jax_computes(name, x64, monkeypatch):
    monkeypatch.setattr(JaxRun, "check", lambda *_: None)
    program = compared(CASES[name], gradients=name not in WITHOUT_GRADIENTS)
    assert name in {op.extra.get("primitive") for op in program.operations}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_played_or_left_to_jax_is_what_it_computes(name, x64, monkeypatch):
    if name not in ("scan", "while", "cond", "calls", "scatter"):  # of these `by_jax.py` has own code
        monkeypatch.setattr(JaxRun, "check", lambda *_: None)
    for each in OTHERS[name]:
        compared([each], gradients="while_loop" not in each)
