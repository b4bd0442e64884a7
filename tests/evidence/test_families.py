"""Families beyond ViT: each port is its original, and a mistake in one is found on its line.

`python -m evidence.families` tries twenty mistakes in each.
"""

import importlib

import pytest

from evidence.families import NAMES, family
from parity.verifier.locate import compare_programs
from parity.verifier.programs.sides import record

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that make the models
CHEAP = ("convnext", "bert", "llama", "gemma")


def check(name):
    module = family(name)
    model, inputs = module.original()
    comparison = compare_programs(record((model, inputs), "A"), record(module.port(model), "B"))
    assert comparison.verdict == "EQUAL", comparison.to_text()
    assert not comparison.notes
    assert comparison.error < 1e-13


@pytest.mark.parametrize("name", CHEAP)
def test_a_port_is_equal(name):
    check(name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in NAMES if name not in CHEAP])
def test_another_port_is_equal(name):
    check(name)


def check_mutants(name, count, elsewhere):
    families = importlib.import_module("evidence.families.__main__")
    family = families.score(name, count)
    assert not family.alarms
    assert len(family.tried) == count
    assert all(each.caught and not each.doubtful for each in family.tried), family.missed
    assert sum(each.placed for each in family.tried) >= count - elsewhere, family.missed


def test_mistakes_in_a_port_are_found():
    check_mutants("mixer", 3, elsewhere=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_more_mistakes_in_a_port_are_found(name):
    check_mutants(name, 5, elsewhere=2)
