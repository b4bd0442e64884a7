"""What is drawn of the core; `python -m evidence.core_mutants` judges it."""

import importlib
import json
import sys
from typing import Any

import pytest

from evidence import ROOT
from evidence.core_mutants import __main__ as command
from evidence.core_mutants.draw import mutants, shuffled, telling
from evidence.core_mutants.equal import EQUAL
from evidence.core_mutants.lines import Lines

SOURCE = """
def area(width, height=2):
    if width < 0 or height < 0:
        raise ValueError(width)
    return width * height

def rim(width, height):
    return 2 * (width + height)
"""
EDITED = SOURCE.replace("\ndef area", "# of rectangles\nNO_AREA = 0\n\ndef area").replace(
    "raise", "print(1)\n        raise"
)


def test_an_edit_leaves_the_order_of_all_other_lines():
    before, after = ([each.name for each in shuffled("area.py", text, 0)] for text in (SOURCE, EDITED))
    assert [name for name in after if name in before] == before
    assert len(after) == len(before) + 2  # 0 and 1
    assert before != [each.name for each in shuffled("area.py", SOURCE, 1)]


def test_a_mutant_is_its_file_with_one_change():
    by_change = {each.change: each for each in mutants(SOURCE)}
    assert "return width / height" in by_change["width * height → width / height"].source
    assert by_change["2 → 3"].function == "rim"
    assert by_change["width < 0 or height < 0 → width < 0 and height < 0"].lines == {3}


@pytest.mark.parametrize("file", ["vit_jax/model.py", "vit_torch/model.py"])
def test_no_two_mutants_have_one_name(file):
    names = [each.name for each in mutants((ROOT / file).read_text())]
    assert len(set(names)) == len(names)


def test_every_mutant_said_to_be_equal_can_be_drawn():
    files = {file: {each.name for each in mutants((ROOT / file).read_text())} for file, _, _ in EQUAL}
    assert [key for key in EQUAL if key[1:] not in files[key[0]]] == []


def test_functions_tell_which_lines_they_run():
    ran = []
    scope: dict[str, Any] = {"_reached": lambda name, line: ran.append((name, line))}
    exec(compile(telling(SOURCE, "area.py"), "area.py", "exec"), scope)
    assert not ran
    assert scope["area"](3) == 6
    assert ran == [("area.py", 3), ("area.py", 5)]


def test_a_mutant_that_a_test_fails_for_is_not_equal(tmp_path, monkeypatch, capsys):
    name, results = next(iter(EQUAL)), tmp_path / "results.jsonl"
    monkeypatch.setattr(command, "drawn", lambda *_: iter(()))
    for by, status in (("", 0), ("tests/test_area.py::test_rim", 1)):
        results.write_text(json.dumps([*name, by, 0.5]))
        monkeypatch.setattr("sys.argv", ["core_mutants", "--results", str(results)])
        assert command.main() == status
        assert ("said to be equal" in capsys.readouterr().out) == bool(status)


def test_a_file_that_tells_its_lines_is_imported_as_any_other(tmp_path, monkeypatch):
    (tmp_path / "area_that_tells.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    lines, hooks = Lines(), [*sys.meta_path]
    with lines.listening(tmp_path, ["area_that_tells.py"]):
        module = importlib.import_module("area_that_tells")
    del sys.modules["area_that_tells"]
    assert sys.meta_path == hooks
    assert module.rim(1, 2) == 6
    assert lines.taken() == {"area_that_tells.py": [8]}
    lines.end()
    module.rim(1, 2)
    assert lines.taken() == {}
