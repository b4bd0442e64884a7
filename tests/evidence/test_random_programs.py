"""A sample of `evidence.random_programs`."""

import random

import pytest

from evidence.random_programs import __main__ as programs
from evidence.random_programs.operations import OPERATIONS


@pytest.mark.parametrize("seed", range(4))
def test_a_program_is_judged_as_it_should_be(seed):
    for compared, expected in programs.judge(seed).values():
        assert expected in ("", compared.verdict)


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_frameworks_compute_the_same(name):
    for arguments in OPERATIONS[name].choices:
        program = (programs.Step(name, arguments, False),)
        (a, x), (b, y) = (programs.side(program, each) for each in programs.FRAMEWORKS)
        assert a(x) == pytest.approx(b(y).numpy(), rel=1e-5, abs=1e-5)


def test_a_change_is_of_one_step():
    rng = random.Random(0)
    program = tuple(programs.drawn(rng) for _ in range(5))
    others = [programs.changed(program, rng) for _ in range(40)]
    assert {len(each) for each in others} == {4, 5}
    assert sum(programs.apart(program, each) > programs.OTHER for each in others) > 20
