"""The exhaustive cases, and the share of them that a run includes.

A case marked `exhaustive` is one of a table whose every row costs a compilation, or a whole page; and
`repeats.json` lists cases of parametrised tests that run no line that others do not run. None of these
runs by default, all with ``--share all``, every n-th with ``--share K/N``, and with ``--share
rotating/N`` the one that is due: the next one each day and each commit.
"""

import json
import subprocess
import time
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

REPEATS = Path(__file__).parent / "repeats.json"
"""Test -> values of its cases that repeat others, as pytest writes them; `make repeats` makes it."""


class Share(NamedTuple):
    """Number `index` of `parts` equal parts; of no parts, nothing."""

    index: int
    parts: int

    def holds(self, name: str) -> bool:
        """Whether a case, by its name, is in it."""
        return self.parts > 0 and zlib.crc32(name.encode()) % self.parts == self.index

    def of(self, rows: Sequence[str]) -> list[str]:
        """Those of a table's rows that are in it; of few rows, at least one."""
        if not rows or not self.parts:
            return []
        return [row for row in rows if self.holds(row)] or [rows[self.index % len(rows)]]

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.parts}" if self.parts else "none"


NOTHING, ALL = Share(0, 0), Share(0, 1)


def due(parts: int) -> int:
    """Which of `parts` shares it is the turn of: the next one each day, and each commit."""
    git = ["git", "rev-list", "--count", "HEAD"]
    try:
        commits = int(subprocess.run(git, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):  # no repository: a copy of the files
        commits = 0
    return (int(time.time() // 86_400) + commits) % parts


def parse(text: str) -> Share:
    """`none`, `all`, `K/N` or `rotating/N`.

    Raises:
        ValueError: anything else.
    """
    if text in ("none", "all"):
        return ALL if text == "all" else NOTHING
    index, _, parts = text.partition("/")
    if index == "rotating":
        return Share(due(int(parts)), int(parts))
    if not 1 <= int(index) <= int(parts):
        raise ValueError(text)
    return Share(int(index) - 1, int(parts))


def rarely(cases: Iterable[str], always: Collection[str]) -> list:
    """Cases as parameters of a test: every run has some of them, and a share of the others."""
    return [pytest.param(each, marks=[] if each in always else pytest.mark.exhaustive) for each in cases]


def split(case: str) -> tuple[str, str]:
    """Split a case into its test and its values; the latter are empty where it has none."""
    test, _, values = case.partition("[")
    return test, values.removesuffix("]")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the exhaustive cases that are not in this run's share; a case that a command names is
    never left out for repeating others."""
    share: Share = config.stash[SHARE]
    repeats = {test: set(values) for test, values in json.loads(REPEATS.read_text("utf-8")).items()}
    named = config.getoption("--repeats") or any("::" in str(each) for each in config.args)

    def exhaustive(item: pytest.Item) -> bool:
        test, values = split(item.nodeid)
        repeated = not named and values in repeats.get(test, ())
        return repeated or item.get_closest_marker("exhaustive") is not None

    left_out = [item for item in items if exhaustive(item) and not share.holds(item.nodeid)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        out = set(left_out)
        items[:] = [item for item in items if item not in out]


SHARE = pytest.StashKey[Share]()
