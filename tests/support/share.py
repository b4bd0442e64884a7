"""The exhaustive cases, and the share of them that a run includes.

A case marked `exhaustive` is one of a table whose every row costs a compilation, or a whole page: none
of them runs by default, all with ``--share all``, every n-th with ``--share K/N``, and with ``--share
rotating/N`` the one that is due: the next one each day and each commit.
"""

import subprocess
import time
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import pytest


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


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the exhaustive cases that are not in this run's share out of it."""
    share: Share = config.stash[SHARE]
    left_out = [
        item for item in items if item.get_closest_marker("exhaustive") and not share.holds(item.nodeid)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        out = set(left_out)
        items[:] = [item for item in items if item not in out]


SHARE = pytest.StashKey[Share]()
