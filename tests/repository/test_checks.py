"""Checks can fail: links, the site, what is skipped, and nothing that silences a command."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted(ROOT.rglob("*"))
    if path.suffix in (".md", ".ipynb") and not {".venv", "build", ".git"} & {*path.parts}
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^()\s]+)\)")
SKIPPED = {
    ("tests/vit_jax/test_shares.py", "libtpu is not installed; make tpu"),
    ("tests/vit_jax/test_tpu_counts.py", "libtpu is not installed; make tpu"),
    (
        "tests/support/counts_lock.py",
        "no counts of this compiler are written down; tools/step_counts.py",
    ),
    ("tests/vit_jax/test_host_memory.py", "options of glibc"),
    ("tests/repository/test_own_loop.py", "Lightning is no dependency; make loops"),
    ("tests/repository/test_own_loop.py", "accelerate is no dependency; make loops"),
}
"""What the suite leaves out where something is missing; all else that it needs is in `.venv`."""
SILENT = re.compile(
    r"\|\| *(true|:)(\s|$)|continue-on-error|--exit-zero|^\t-|set \+e"
    r"|--quiet.*--strict|--strict.*--quiet",
    re.MULTILINE,
)


def text_of(path):
    """What a page says: of a notebook, its cells of text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    cells = json.loads(text)["cells"]
    return "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "markdown")


def anchors(path):
    """What a heading of a page is called in a link to it."""
    heads = re.findall(r"^#+ +(.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken_links(path, root=ROOT):
    """The links of a page that lead nowhere, and those of the site's pages that leave the site."""
    docs = root / "docs"
    for link in LINK.findall(text_of(path)):
        name, _, anchor = link.partition("#")
        if "://" in name or name.startswith("mailto:"):
            continue
        target = (path.parent / name).resolve() if name else path
        leaves = path.is_relative_to(docs) and not target.is_relative_to(docs)
        lost = anchor and target.suffix == ".md" and target.exists() and anchor not in anchors(target)
        if not target.exists() or leaves or lost:
            yield link


def test_every_link_leads_somewhere():
    assert len(PAGES) > 40
    assert {
        f"{path.relative_to(ROOT)}: {link}" for path in PAGES for link in broken_links(path)
    } == set()


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (docs := tmp_path / "docs").mkdir()
    (tmp_path / "recipe.toml").write_text("")
    (docs / "b.md").write_text("# Two words\n")
    page = docs / "a.md"
    page.write_text(
        "# A\n\n[x](b.md) [x](b.md#two-words) [x](c.md) [x](b.md#three) [x](../recipe.toml)\n"
    )
    assert [*broken_links(page, tmp_path)] == ["c.md", "b.md#three", "../recipe.toml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "more", "said"),
    [
        ("b.md", "", None),
        ("c.md", "", "link 'c.md'"),
        ("b.md#three", "", "'#three'"),
        ("../setup.py", "", "link '../setup.py'"),
        ("b.md", "c.md", "c.md"),
    ],
)
def test_make_site_stops_at_a_page_that_is_wrong(tmp_path, link, more, said):
    """The very command of the Makefile, with the very settings."""
    make = ["make", "--no-print-directory", "-n", "-o", ".venv/ready", "site"]
    asked = subprocess.run(make, cwd=ROOT, capture_output=True)
    command = shlex.split(asked.stdout.decode().splitlines()[-1])
    lines = (ROOT / "mkdocs.yml").read_text().splitlines(keepends=True)
    config = "".join(line for line in lines if re.match(r"strict|validation|  (nav|links): \{", line))
    nav = "nav: [a.md, b.md]\n"
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nuse_directory_urls: false\n{config}{nav}")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(f"# A\n\n[to it]({link})\n")
    (tmp_path / "docs" / "b.md").write_text("# B\n\n## Two\n")
    if more:
        (tmp_path / "docs" / more).write_text("# C\n")
    done = subprocess.run(
        [ROOT / command[0], *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (said is None), done.stderr
    assert said is None or said in done.stderr


def test_what_the_suite_may_skip_is_known():
    """A skip is green: what the environment holds is imported, and fails where it is not there."""
    actual = set()
    here = Path(__file__)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8") if path != here else ""
        for call in re.findall(r"(?:importorskip|pytest\.skip|mark\.skip|skipif|xfail)\(.*", text):
            reason = re.search(r'reason="([^"]*)"', call)
            actual.add((str(path.relative_to(ROOT)), reason[1] if reason else call))
    assert actual == SKIPPED


def test_what_the_suite_skips_is_run_by_the_command_that_it_names():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ci = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    named = [(file, *reason.split("; make ")[1:]) for file, reason in SKIPPED if "; make " in reason]
    assert len(named) == 4
    for file, target in named:
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert recipe is not None, target
        assert file in recipe[1], (file, target)
        assert f"run: make {target}\n" in ci, target


def test_every_file_with_exhaustive_cases_is_in_the_table_of_these():
    table = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    files = {
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.exhaustive|\brarely\(", path.read_text(encoding="utf-8"))
    } - {Path(__file__).name}
    assert len(files) > 40
    assert sorted(name for name in files if f"`{name}`" not in table) == []


def scripts():
    """What continuous integration runs that is no Python."""
    return [
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
        *(ROOT / ".github" / "workflows").glob("*.yml"),
        *(path for folder in ("tests", "tools") for path in (ROOT / folder).rglob("*.sh")),
    ]


def test_no_command_of_continuous_integration_is_silenced():
    assert len(scripts()) >= 7
    for path in scripts():
        text = path.read_text(encoding="utf-8")
        assert not SILENT.search(text), path
        if text.startswith("#!"):
            assert re.search(r"^set -euo pipefail$", text, re.MULTILINE), path


@pytest.mark.parametrize(
    "text",
    [
        "\tmkdocs build --strict --quiet",
        "\t-ruff check .",
        "ruff check . || true",
        "pytest || :",
        "      continue-on-error: true",
        "set +e",
    ],
)
def test_what_silences_is_seen(text):
    assert SILENT.search(f"x\n{text}\n")
