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


COMPARED = (
    "porting.md", "porting_with_an_agent.md", "matching.md", "loaded.md", "verifying.md", "moving.md",
    "tutorial.md", "smaller_types.md",
)  # fmt: skip
NOT_COMPARED = {
    "devices.md": "test_as_it_is.py compares it",
    "exporting.md": "its command is tried by test_export.py",
    "family.md": "the whole sweep; `make family` runs it",
    "naflex.md": "minutes of 200 images; test_patches.py has seven",
    "operations.md": "commands in the repository itself, which other pages show as well",
    "parity.md": "hours of checks",
    "reports.md": "its command prints what that of operations.md prints",
    "scaling.md": "measurements of one machine",
    "mnist.md": "trainings of minutes each",
    "training.md": "measurements of one machine",
    "training_parity.md": "a hundred steps; `make steps` runs them",
    "twins.md": "nothing of what they print is shown",
}
"""Pages whose commands are not run here, and why."""


def test_each_page_with_commands_is_compared_or_says_why_not():
    shown = {
        page.name
        for page in (REPOSITORY / "docs").glob("*.md")
        if any(line.startswith("$ ") for line in page.read_text(encoding="utf-8").splitlines())
    }
    assert shown == {*COMPARED, *NOT_COMPARED}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # of the library that makes the example
@pytest.mark.parametrize("page", COMPARED)
def test_the_page_is_what_happens(page, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    transcript = importlib.import_module("transcript")
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    transcript.make_example(tmp_path, page)
    now = transcript.rerun(text, tmp_path)
    assert transcript.masked(now) == transcript.masked(text)
