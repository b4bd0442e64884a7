"""One report in two forms: JSON by its schema, a page that loads nothing."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from parity import diff, record
from parity.cli import run
from parity.measure.shown import json_text
from parity.verifier.compare import compare
from parity.verifier.recordings.report import report_of_diagnosis
from parity.verifier.report import Finding, Report, Table
from parity.verifier.report.of_comparison import report_of
from parity.verifier.report.page import to_html
from parity.verifier.report.sides import Line, PlaceSide
from tests.support import operations_models as models

ROOT = Path(__file__).parents[4]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
VOID = {"meta", "br", "hr", "img", "link"}


@pytest.fixture(scope="module")
def report():
    model, weights, x = models.torch_model()
    b = models.jax_model("tanh"), (weights, x)
    return report_of(compare((model, x), b, names=("a <b>", "b.py:port")))


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def test_no_name_acts_on_a_terminal_that_shows_the_page(report):
    text = to_html(replace(report, summary="\x1b[2J<b>\r\ud800"))
    assert "\\x1b[2J&lt;b&gt;\\x0d\\ud800" in text


def test_json_keeps_to_its_schema(report):
    content = json.loads(json.dumps(report.to_dict()))
    jsonschema.validate(content, SCHEMA)
    (finding,) = content["findings"]
    assert (finding["rule"], finding["level"]) == ("activation", "error")
    assert finding["b"]["lines"][0]["text"].startswith("y = jax.nn.gelu")
    assert finding["b"]["formula"].startswith("tanh(")
    assert content["places"][0]["kind"] == "operations"  # the fields of `Compared.to_dict` are there too
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content | {"verdict": "MAYBE"}, SCHEMA)


def test_the_page_is_well_formed_loads_nothing_and_escapes(report):
    text = to_html(report)
    page = Page(text)
    assert not [each for each in page.attributes if each[1] in ("src", "href", "srcset")]
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text
    said = " ".join(page.text)
    assert "a <b> and b.py:port" in said
    assert "tanh(0.797884560803 * (x + 0.044715 * x ** 3))" in said
    assert "1. activation: gelu, tanh where A has gelu" in said
    assert len(text) < 10_000


def test_a_report_of_anything_has_both_forms():
    """Findings without lines, numbers that are not finite, tables."""
    part = PlaceSide("", (), "blocks.0")
    far = PlaceSide("x < 1", (Line("/no/such file.py", 3, "f", "x = 1 < 2"),))
    findings = (
        Finding("not-compared", "warning", "nothing to compare", PlaceSide("", ()), PlaceSide("", ())),
        Finding(
            "forward-differs", "error", "blocks.0 differs", part, far, float("inf"), 1e-14, ("why",), 3
        ),
    )
    table = Table(("step", ""), (("0", "ok"), ("1", "differs"), ("2", "<script>")))
    report = Report("diff", "a", "b", "DIFFERENT", "2 pairs", findings, table)
    content = json.loads(json_text(report.to_dict()))
    first, second = content["findings"]
    assert (first["b"]["lines"], second["error"]) == ([], "inf")
    assert second["b"]["lines"][0]["file"] == "/no/such file.py"
    assert second["a"]["module"] == "blocks.0"
    said = " ".join(Page(to_html(report)).text)
    assert "<script>" in said
    assert "at 3 places" in said


def test_recordings_have_both_forms(tmp_path):
    for name, rate in (("a", 0.1), ("b", 0.2)):
        with record(tmp_path / name) as recording, recording.step(x=np.ones((2, 3))):
            recording.log("forward", {"norm": np.full((2, 3), rate)}, port="out")
    report = report_of_diagnosis(diff(tmp_path / "a", tmp_path / "b"))
    content = json.loads(json.dumps(report.to_dict()))
    jsonschema.validate(content, SCHEMA)
    assert (content["findings"][0]["rule"], content["stages"][1]["passed"]) == ("unknown-cause", False)
    assert content["findings"][0]["b"]["module"] == "norm"
    assert "All that was compared" in Page(to_html(report)).text


def test_the_command_writes_both(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sides.py").write_text(SIDES)
    assert run("diff", ["sides.py:a", "sides.py:b", *FLAGS]) == 1
    assert "DIFFERENT" in capsys.readouterr().out
    content = json.loads(Path("f.json").read_text())
    jsonschema.validate(content, SCHEMA)
    assert content["findings"][0]["b"]["lines"][0]["file"].endswith("sides.py")
    assert Page(Path("f.html").read_text())
    assert run("diff", ["sides.py:a", "sides.py:a", *FLAGS]) == 0
    assert json.loads(Path("f.json").read_text())["findings"] == []
    assert "EQUAL" in Path("f.html").read_text()


FLAGS = ["--json", "f.json", "--html", "f.html"]
SIDES = """
import numpy as np
import torch

X = torch.arange(1.0, 8.0)


def a():
    return lambda x: torch.sin(x) * 2, X


def b():
    return lambda x: torch.cos(x) * 2, X
"""


def test_files_that_cannot_be_written_are_refused_first(tmp_path, capsys):
    sides = ["docs/port.py:original", "docs/port.py:port"]
    twice, lost = str(tmp_path / "x"), str(tmp_path / "no" / "x")
    for flags, said in (
        (["--json", twice, "--html", twice], "--json and --html are both to be written to"),
        (["--json", lost], "no such folder"),
        (["--html", str(tmp_path)], "is a folder"),
    ):
        assert run("diff", [*sides, *flags], prog="parity diff") == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
