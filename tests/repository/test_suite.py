"""The suite's own parts: shares that together are all, budgets that are kept or not."""

import re
from pathlib import Path

import pytest

from tests.support import cost, share

ROOT = Path(__file__).parents[2]
NAMES = [f"test_{number}.py::test[{number}]" for number in range(500)]


@pytest.mark.parametrize("parts", [1, 2, 6])
def test_shares_are_disjoint_and_together_all(parts):
    shares = [share.parse(f"{number + 1}/{parts}").of(NAMES) for number in range(parts)]
    assert sorted(name for each in shares for name in each) == sorted(NAMES)
    assert min(map(len, shares)) > len(NAMES) / parts / 2


def test_a_share_of_few_rows_has_one():
    for number in range(6):
        assert len(share.Share(number, 6).of(["a", "b"])) >= 1
    assert share.ALL.of([]) == share.NOTHING.of(["a"]) == []


def test_what_is_due_goes_round(monkeypatch):
    day = iter(range(6))
    monkeypatch.setattr(share.time, "time", lambda: 86_400.0 * next(day))
    assert len({share.parse("rotating/6") for _ in range(6)}) == 6


def test_words_for_shares():
    assert not share.parse("none").holds("a")
    assert share.parse("all").holds("a")
    assert [str(share.parse(text)) for text in ("none", "all", "2/3")] == ["none", "1/1", "2/3"]
    assert share.parse("1/1") == share.ALL
    for text in ("0/3", "4/3", "some", "1/"):
        with pytest.raises(ValueError):  # noqa: PT011 - conftest.py says what is wrong
            share.parse(text)


def test_every_tool_is_in_the_list_of_tools():
    listed = (ROOT / "tools" / "README.md").read_text()
    tools = {path.name for path in (ROOT / "tools").glob("*.py")}
    assert len(tools) > 8
    assert not [name for name in tools if f"`{name}`" not in listed]


def test_every_command_of_the_evidence_is_in_the_list_of_claims():
    folder = ROOT / "evidence"
    listed = (folder / "README.md").read_text()
    commands = {
        path.parent.name if path.name == "__main__.py" else path.stem
        for path in folder.rglob("*.py")
        if '__name__ == "__main__"' in path.read_text() and "pairs" not in path.parts
    } - {"worker", "peak"}  # which bench starts
    commands -= {"digits_jax", "digits_torch"}  # which speedruns.table runs
    assert len(commands) > 30
    assert not [name for name in commands if not re.search(rf"`[^`\n]*\b{name}\b", listed)]


def test_every_command_of_the_evidence_answers_help():
    """One that reads no command line would run for hours instead."""
    started = {
        "bench/peak.py",
        "bench/worker.py",
        "speedruns/digits_jax.py",
        "speedruns/digits_torch.py",
    }
    silent = {
        str(path.relative_to(ROOT / "evidence"))
        for path in (ROOT / "evidence").rglob("*.py")
        if '__name__ == "__main__"' in (text := path.read_text()) and "pairs" not in path.parts
        if not re.search(r"ArgumentParser\(|positional\(|\bparse_or_complain\(|tyro", text)
    }
    assert silent == started  # by the commands, which do


def test_a_budget_is_broken_by_more_than_double():
    limits = {"a": 50.0, "b": 1.0}
    costs = {"a": 119.0, "b": 23.0, "new": 61.0}
    assert cost.over(costs, limits, 1.0) == {"b": 22.0, "new": 60.0}
    assert cost.over(costs, limits, 1.1) == {}
    assert cost.over(costs, {}, 1.0) == {}  # nothing was measured yet


def test_the_loop_takes_a_while():
    assert 0.01 < cost.loop() < 30
