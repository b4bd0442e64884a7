"""The page about matching is a transcript: its commands still print what it says."""

import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the library that makes the example
def test_the_page_is_what_happens(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    transcript = importlib.import_module("transcript")
    text = (REPOSITORY / "docs/matching.md").read_text(encoding="utf-8")
    transcript.make_example(tmp_path)
    now = transcript.rerun(text, tmp_path)
    assert transcript.masked(now) == transcript.masked(text)
