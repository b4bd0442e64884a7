"""The mutants of the core: their files, their tests, the verdict; `make mutants` fetches cosmic-ray."""

from types import SimpleNamespace

import pytest

from evidence import ROOT
from evidence.core_mutants import __main__ as command
from evidence.core_mutants.nearest import GROUPS


@pytest.mark.parametrize("group", GROUPS)
def test_every_file_and_test_of_a_group_is_there(group):
    files, tests = GROUPS[group].sources(ROOT), GROUPS[group].tests
    assert files
    assert all((ROOT / "tests" / each.partition("::")[0]).is_file() for each in tests)
    said, limit = command.command_of(group, suite=False)
    assert "--share=all" in said
    assert limit > command.SLACK


def test_cheap_tests_come_first():
    said, _ = command.command_of("leaves", suite=True)
    tests = [each for each in said.split() if each.startswith("tests/")]
    cost = [command.budgets().get(each, command.NEW) for each in tests]
    assert cost == sorted(cost)
    assert len(cost) == len(GROUPS["leaves"].tests)


@pytest.mark.parametrize(("killed", "share", "status"), [(8, "all", 0), (7, "all", 1), (5, "1/9", 0)])
def test_too_many_survivors_fail(killed, share, status, monkeypatch, capsys):
    mutation = SimpleNamespace(module_path="a.py", operator_name="core/AddNot", occurrence=0)
    item = SimpleNamespace(mutations=[mutation])
    results = [(item, SimpleNamespace(is_killed=n < killed, diff="-a\n+b")) for n in range(10)]
    monkeypatch.setattr(command, "go_on_in_a_copy", lambda folder: None)
    monkeypatch.setattr(command.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    monkeypatch.setattr(command, "judge", lambda *_: results)
    monkeypatch.setattr("sys.argv", ["core_mutants", "--only", "layer_decay", "--share", share])
    assert command.main() == status
    assert f"{killed} of 10 killed" in capsys.readouterr().out
