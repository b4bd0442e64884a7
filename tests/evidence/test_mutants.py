"""Other people's models with one thing changed; `python -m evidence.mutants` tries hundreds."""

import random

import numpy as np
import pytest
import torch

from evidence.mutants.changes import mutants
from evidence.mutants.judging import outcome
from evidence.mutants.subjects import MODELS
from parity.verifier.locate import compare, compare_programs
from parity.verifier.programs.sides import record


@pytest.fixture(scope="module")
def mixer():
    model, inputs, modules = MODELS["jax mixer"]()
    original = record((model, inputs), "A")
    return model, inputs, original, list(mutants(model, original, modules))


@pytest.mark.parametrize(
    ("line", "what", "cause"),
    [
        (86, "without jnp.swapaxes(y, 1, 2)", "term left out"),  # of both blocks, which normalise alike
        (89, "without y", "term left out"),
        (51, "sqrt -> exp", "operation"),
        (49, "without axis=-1", ""),
    ],
)
def test_a_mutant_of_a_plain_function_is_placed(mixer, line, what, cause):
    model, inputs, original, all_of_them = mixer
    (mutant,) = (m for m in all_of_them if m.place == f"jax_families:{line}" and m.what == what)
    tried = outcome("jax mixer", model, inputs, original, mutant)
    assert (tried.caught, tried.placed, tried.doubtful) == (True, True, ()), tried.said
    assert not cause or cause in tried.named


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_mutants_of_a_model(name):
    model, inputs, modules = MODELS[name]()
    original = record((model, inputs), "A")
    choices = list(mutants(model, original, modules))
    random.Random(name).shuffle(choices)
    outcomes = (outcome(name, model, inputs, original, mutant) for mutant in choices)
    tried = [
        each for each, _ in zip((o for o in outcomes if o.state == "tried"), range(4), strict=False)
    ]
    assert all(each.caught and not each.doubtful for each in tried), tried
    assert sum(each.placed for each in tried) >= 3, tried


def test_rows_that_are_masked_altogether_are_no_rounding():
    """Softmax of nothing but the mask is chaotic: a nudge changes all of it."""
    least = torch.finfo(torch.float32).min
    mask = torch.full((5, 5), least).triu(1)

    def attend(axis):
        return lambda x: torch.softmax(x + mask, axis)

    x = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compared = compare((attend(-1), x), (attend(0), x))
    assert compared.verdict == "DIFFERENT"
    assert compared.places[0].cause == "axis"


def test_outputs_of_one_name_and_two_sizes_differ():
    x = np.ones((3, 2)) * np.arange(1.0, 3)

    def all_of_it(x):
        return {"tokens": torch.tanh(x), "mean": x.mean()}

    def one_row(x):
        return {"tokens": torch.tanh(x[:1]), "mean": x.mean()}

    compared = compare((all_of_it, torch.tensor(x)), (one_row, torch.tensor(x)))
    assert compared.verdict == "DIFFERENT"
    assert not compared.counts.outputs_left_out


def test_plus_infinity_is_not_minus_infinity():
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = torch.full((4, 4), -1e38, dtype=torch.float64).triu(1)
    a = record((lambda x: torch.softmax(x + mask, -1), x), "A")
    comparison = compare_programs(a, record((lambda x: torch.softmax(x - mask, -1), x), "B"))
    assert comparison.places[0].cause == "operation"
    assert comparison.places[0].message == "sub where A has add"
