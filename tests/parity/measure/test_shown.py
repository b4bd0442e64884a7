"""Results as JSON, which has neither NaN nor infinities."""

import json

import pytest

from parity.measure.shown import json_text, write_json

pytestmark = pytest.mark.quick


def test_numbers_that_json_lacks_are_text(tmp_path):
    content = {"a": float("nan"), "b": [1.5, (float("-inf"), None)], "c": {"d": float("inf")}}
    plain = {"a": "nan", "b": [1.5, ["-inf", None]], "c": {"d": "inf"}}
    write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text()
    assert text.endswith("}\n")
    assert json.loads(text) == json.loads(json_text(content, indent=None)) == plain
