"""Results as JSON, which has neither NaN nor infinities."""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.measure.shown import alike, json_text, portable, write_json

pytestmark = pytest.mark.quick


def test_numbers_that_json_lacks_are_text(tmp_path):
    content = {"a": float("nan"), "b": [1.5, (float("-inf"), None)], "c": {"d": float("inf")}}
    plain = {"a": "nan", "b": [1.5, ["-inf", None]], "c": {"d": "inf"}}
    write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == json.loads(json_text(content, indent=None)) == plain


def test_what_is_given_to_others_names_no_folder_of_this_machine(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", "/home/somebody")
    here, package = str(Path.cwd()), str(Path(np.__file__).parent)
    given = {
        here + "/a.py": [f"{package}/linalg.py:3", "/home/somebody/x y/b.py and /home/somebodyelse/c"]
    }
    told = {"a.py": ["numpy/linalg.py:3", "~/x y/b.py and /home/somebodyelse/c"]}
    assert portable(given) == told
    assert portable(f"/mnt{here}/a.py") == f"/mnt{here}/a.py"
    assert portable("(/usr/share/a b.py:f) ../c.py https://x.org/usr/share/d") == (
        "(a b.py:f) ../c.py https://x.org/usr/share/d"
    )
    write_json(Path("x.json"), given)
    assert json.loads(Path("x.json").read_text()) == told


def test_names_that_differ_in_numbers_alone_are_one():
    def one(*names):
        return list(alike(names))

    assert one("b.0.w", "b.1.w", "b.2.w", "b.5.w", "head") == ["b.{0-2,5}.w", "head"]
    assert one("b.0.w", "b.0.w") == ["b.0.w"]
    assert one("b.3.w holds b.3.v", "b.4.w holds b.4.v") == ["b.{3-4}.w holds b.{3-4}.v"]
    assert one("s.0.b.0", "s.0.b.1", "s.1.b.0", "s.1.b.1") == ["s.{0-1}.b.{0-1}"]
    assert one("s.0.b.0", "s.1.b.1", "s.1.b.2") == ["s.0.b.0", "s.1.b.{1-2}"]
    norms = [f"{k}.n{i} has {k}.n{3 - i}" for k in range(3) for i in (1, 2)]
    told = {"{0-2}.n1 has {0-2}.n2": norms[::2], "{0-2}.n2 has {0-2}.n1": norms[1::2]}
    assert alike(norms) == told
