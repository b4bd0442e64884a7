"""A report beside an earlier one: what has gone, what has changed, what is new."""

import json
from pathlib import Path

import pytest

from parity.cli import run
from parity.verifier.report.since import compare_reports, read_report, seen_in

SIDES = """
import torch

X = torch.linspace(0.1, 1.9, 21).reshape(3, 7)
W = torch.cos(torch.arange(49.0)).reshape(7, 7)


def of(eps, factor):
    def model(x):
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + eps)
        x = torch.sigmoid(x @ W)
        return (x * factor + x.flip(0)) @ W
    return model, X


def a():
    return of(1e-6, 2.0)


def both():
    return of(1e-3, 2.5)


def one():
    return of(1e-6, 2.5)


def nearer():
    return of(1e-6, 2.1)


def other():
    return of(1e-4, 2.0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sides.py").write_text(SIDES)
    return capsys


def diff(capsys, side, *flags):
    flags = ["--forward", "--json", "now.json", *flags]
    status = run("diff", ["sides.py:a", f"sides.py:{side}", *flags], prog="parity diff")
    Path("now.json").replace("last.json")
    return status, capsys.readouterr()


def test_gone_still_there_and_new(folder):
    _, said = diff(folder, "both")
    assert said.err.startswith("found first: epsilon: 0.001 where A has 1e-06; A sides.py:10 x + 1e-06;")
    assert "found first" not in said.out
    places = json.loads(Path("last.json").read_text())["places"]
    assert len(places) == 2
    _, said = diff(folder, "one", "--since", "last.json")
    lines = said.out.splitlines()
    assert lines[0] == "since last.json: 1 of 2 places gone, 1 still there, 0 new"
    assert lines[1].startswith("  gone: epsilon: 0.001 where A has 1e-06 (A sides.py:10, B sides.py:10")
    assert lines[2].startswith("  unchanged: 1. ")
    assert lines[4].startswith("DIFFERENT")
    content = json.loads(Path("last.json").read_text())["since"]
    assert [each["was"] for each in content["gone"]] == [1]
    assert [(each["was"], each["place"]) for each in content["still"]] == [(2, 1)]
    _, said = diff(folder, "nearer", "--since", "last.json")
    assert "0 of 1 places gone, 1 still there, 0 new" in said.out
    assert "  smaller: 1. " in said.out
    assert "relative error 0." in said.out
    status, said = diff(folder, "other", "--since", "last.json")
    assert (status, "  new: 1. epsilon: 0.0001 where A has 1e-06" in said.out) == (1, True)
    status, said = diff(folder, "a", "--since", "last.json")
    assert status == 0
    assert said.out.startswith("since last.json: 1 of 1 places gone, 0 still there, 0 new\n  gone: eps")


def place(letter, error, relation, formula="{0} + {0} @ x", terms=()):
    side = {"formula": formula.format(letter), "module": "", "lines": [
        {"file": "/a/model.py", "line": 7, "function": "f", "text": "return x + y @ x"}]}  # fmt: skip
    operands = [{"letter": letter, "relation": relation}]
    return {"kind": "operations", "cause": "", "message": "", "error": error, "times": 1,
            "a": side, "b": side | {"operands": operands}, "terms": list(terms)}  # fmt: skip


def report(*places):
    return {"schema": "parity.report/1", "places": list(places), "legend": dict.fromkeys("xyz", "")}


def test_the_same_words_with_one_of_two_mistakes_gone_are_told_apart():
    before = report(place("y", 0.31, "axes exchanged (0 and 1)"))
    now = report(place("z", 0.12, "same"))  # another letter, as earlier places are gone
    lines = compare_reports(Path("last.json"), seen_in(before), seen_in(now)).to_text()
    assert lines[0].endswith("0 of 1 places gone, 1 still there, 0 new")
    assert "smaller: 1. operations" in lines[1]
    assert "relative error 0.31 -> 0.12" in lines[1]
    assert lines[1].endswith("operand v1 is now same, was axes exchanged (0 and 1)")
    same = compare_reports(Path("last.json"), seen_in(now), seen_in(report(place("x", 0.12, "same"))))
    assert "operand v1" not in same.to_text()[1]


def test_another_named_fault_of_the_same_line_is_new():
    """One line of `torch.nn.Sequential` computes a norm, an activation and two products."""
    before = report(place("y", 0.3, "same", "erf({0})") | {"cause": "activation"})
    now = report(place("y", 0.1, "same", "{0} + 1e-06") | {"cause": "epsilon"})
    lines = compare_reports(Path("last.json"), seen_in(before), seen_in(now)).to_text()
    assert lines[0].endswith("1 of 1 places gone, 0 still there, 1 new")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        ("{", "not a report"),
        ("[]", "schema None"),
        ('{"schema": "parity.precision/1"}', "schema 'parity.precision/1'"),
        ('{"schema": "parity.report/1"}', "recordings"),
        ('{"schema": "parity.report/1", "places": [{}]}', "not a report"),
        ('{"schema": "parity.report/1", "places": 3}', "not a report"),
    ],
)
def test_other_files_are_refused_in_one_line(folder, content, said):
    Path("last.json").unlink(missing_ok=True)
    if content is not None:
        Path("last.json").write_text(content)
    assert run("diff", ["sides.py:a", "sides.py:one", "--since", "last.json"], prog="parity diff") == 2
    err = folder.readouterr().err
    assert err.count("\n") == 1
    assert "last.json: " in err
    assert said in err


def test_reports_of_before_are_read(tmp_path):
    """Without operands and terms, as earlier versions wrote them."""
    old = place("y", "inf", "")
    del old["b"]["operands"], old["terms"]
    (tmp_path / "old.json").write_text(json.dumps(report(old)))
    (seen,) = read_report(tmp_path / "old.json")
    assert (seen.error, seen.formula_a) == (float("inf"), "v1 + v1 @ v2")


def test_it_goes_with_two_programs(folder):
    flags = ["--bisect-precision", "bfloat16", "--bound", "0.1", "--since", "x"]
    assert run("diff", ["sides.py:a", *flags], prog="parity diff") == 2
    assert "--since goes with two programs" in folder.readouterr().err
