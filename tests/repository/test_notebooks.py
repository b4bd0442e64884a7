"""Notebooks are kept with the output of a whole run; `make notebooks` executes them and compares."""

import importlib
import json
import os
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
LONGEST = 25
"""Lines of a cell."""


def test_there_are_some():
    assert [path.stem for path in NOTEBOOKS] == ["port", "repair", "train", "verify"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_whole_and_of_no_machine(path):
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert max(len(cell["source"]) for cell in code) <= LONGEST
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert kinds <= {"stream", "execute_result", "display_data"}  # no error
    assert not re.search(r"/(tmp|home|root|Users|work)/|\\u001b", text)


@pytest.fixture
def tool(monkeypatch):
    """tools/notebooks.py, with the environment as it was afterwards."""
    monkeypatch.syspath_prepend(NOTEBOOKS[0].parents[2] / "tools")
    before = dict(os.environ)
    yield importlib.import_module("notebooks")
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter, about asyncio and its ports
def test_another_output_and_an_error_are_told(tool, tmp_path):
    def said(source, saved):
        path = tmp_path / "one.ipynb"
        stream = {"output_type": "stream", "name": "stdout", "text": saved}
        cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": source, "execution_count": 1}
        content = {"cells": [cell | {"outputs": [stream]}], "metadata": {}, "nbformat": 4}
        path.write_text(json.dumps(content | {"nbformat_minor": 5}), encoding="utf-8")
        return tool.check(path)

    assert said("print(1 + 1)", "2\n") is None
    assert "cell 0 printed\n3 \nbut the file has\n2" in (said("print(1 + 2)", "2\n") or "")
    assert "ZeroDivisionError" in (said("1 / 0", "2\n") or "")
