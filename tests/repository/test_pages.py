"""Pages say for whom they are; those that are transcripts still say what their commands print."""

import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


pytestmark = pytest.mark.quick


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_says_first_for_whom_it_is(page):
    title, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert first.startswith("For ")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # of the library that makes the example
@pytest.mark.parametrize(
    "page",
    ["porting.md", "matching.md", "verifying.md", "moving.md", "certificate.md", "tutorial.md"],
)
def test_the_page_is_what_happens(page, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    transcript = importlib.import_module("transcript")
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    transcript.make_example(tmp_path, page)
    now = transcript.rerun(text, tmp_path)
    assert transcript.masked(now) == transcript.masked(text)
