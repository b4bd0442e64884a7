"""A sample of `evidence.loaded`: omissions in models of other libraries, and right ones."""

import pytest

from evidence.loaded.__main__ import judge_case, score
from evidence.loaded.case import cases_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that make the models
SAMPLE = {"in_torch": 12, "wrapped": 4, "dialects": 17, "in_jax": 11}
"""Every such case of each group; Keras is no dependency of the tests."""


@pytest.mark.slow
@pytest.mark.parametrize("group", SAMPLE)
def test_a_sample_is_judged_rightly(group):
    outcomes = [judge_case(case) for case in cases_of(group)[:: SAMPLE[group]]]
    assert len({each.case.loaded for each in outcomes}) == 2
    assert [(each.case.name, each.text) for each in outcomes if not each.right] == []
    assert "| **all** |" in score(outcomes)[-1]


def test_there_are_sixty_of_each():
    every = [case for group in SAMPLE for case in cases_of(group)]
    names = {(case.library, case.name, case.loaded) for case in every}
    assert len(names) == len(every)
    for loaded in (True, False):
        assert sum(case.loaded == loaded for case in every) >= 60
