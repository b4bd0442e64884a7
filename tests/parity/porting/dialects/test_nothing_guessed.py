"""No two functions under the same names and shapes are taken for each other."""

from __future__ import annotations

from collections import Counter

import pytest

from parity.porting.dialects import dialects
from parity.porting.dialects.dialect import NEUTRAL, SIZES, by_code
from parity.porting.recognition.questions import SILENT
from tests.support import look_alikes
from vit_config import ViTConfig

EVERY = 5
"""The suite takes one group of so many; `exhaustive` cases are the others."""


@pytest.fixture(scope="module")
def groups():
    return look_alikes.groups()


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, EVERY))]
)
def test_what_looks_alike_is_asked_for_or_told_apart(groups, part):
    outcomes = [
        outcome
        for group in groups[part::EVERY]
        for read in (look_alikes.bare, look_alikes.beside_config)
        for outcome in read(group)
    ]
    assert not [each for each in outcomes if each.kind == "WRONG"]
    counts = Counter(each.kind for each in outcomes)
    assert counts["asked"] > 50
    assert counts["told"] > 50


def test_a_guess_would_be_found(groups, monkeypatch):
    """Heads from a list of published widths, as this reader once had it."""
    (mae,) = (each for each in dialects() if each.name == "mae")
    heads = {40: 5, 192: 3}

    def listed(fields):
        return by_code("a list", num_heads=heads[fields["hidden_size"]], pool="class")

    monkeypatch.setitem(mae.__dict__, "follows", listed)
    outcomes = [
        each for group in groups if "mae" in group.members.values() for each in look_alikes.bare(group)
    ]
    assert "WRONG" in {each.kind for each in outcomes}


@pytest.mark.parametrize("dialect", dialects(), ids=lambda each: each.name)
def test_a_value_of_the_code_says_where_it_stands(dialect):
    for name, fixed in dialect.fixed.items():
        assert fixed.by, name
        assert name in SILENT or name in NEUTRAL, f"{name} is shown by shapes"
        if name in SILENT and name not in (*SIZES, *NEUTRAL, *dialect.asks):
            allowed = dialect.can.get(name, (ViTConfig.model_fields[name].default,))
            others = () if callable(allowed) or not isinstance(allowed, tuple) else allowed
            assert not others or fixed.value in others, name
