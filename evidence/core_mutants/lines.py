"""Which lines of some files each test runs, and what it costs."""

from __future__ import annotations

import builtins
import contextlib
import json
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.main import pytest_runtestloop

from evidence.core_mutants.draw import telling


class Ran(NamedTuple):
    """What a test does."""

    seconds: float
    lines: dict[str, list[int]]


class Lines:
    """A plugin of pytest that notes seconds and lines of every test."""

    def __init__(self) -> None:
        self._found: dict[str, Ran] = {}
        self._lines: defaultdict[str, set[int]] = defaultdict(set)
        self._failed: set[str] = set()

    @contextlib.contextmanager
    def listening(self, copy: Path, files: Iterable[str]) -> Iterator[None]:
        """Functions of a copy's files say which lines they run, in this process and its forks."""
        paths = {str(copy / each): each for each in files}
        plain = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, fullname: str) -> types.CodeType | None:
            if not (name := paths.get(loader.path)):
                return plain(loader, fullname)
            tree = telling(Path(loader.path).read_text(), name)
            return compile(tree, loader.path, "exec", dont_inherit=True)

        builtins._reached = lambda name, line: self._lines[name].add(line)  # type: ignore[attr-defined]
        SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        try:
            yield
        finally:
            SourceFileLoader.get_code = plain  # type: ignore[method-assign]

    def taken(self) -> dict[str, list[int]]:
        """The lines that ran since the last call."""
        found = {name: sorted(each) for name, each in self._lines.items()}
        self._lines.clear()
        return found

    def end(self) -> None:
        """From now on lines are not noted."""
        builtins._reached = lambda *_: None  # type: ignore[attr-defined]

    def measure(self, session: pytest.Session, items: list[pytest.Item], path: Path) -> int:
        """Run tests and write what each does."""
        session.config.pluginmanager.register(self)
        run_items(session, items, most=0)
        path.write_text(json.dumps(self._found))
        return 0

    @staticmethod
    def read(path: Path) -> dict[str, Ran]:
        """What was written, by each test's name."""
        return {name: Ran(*each) for name, each in json.loads(path.read_text()).items()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take out one that fails."""
        if report.failed:
            print(f"{report.nodeid} fails without any mutant", file=sys.stderr, flush=True)
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        """Note what it runs."""
        self.taken()
        start = time.process_time()
        try:
            return (yield)
        finally:
            spent = round(time.process_time() - start, 3)
            if item.nodeid not in self._failed:
                self._found[item.nodeid] = Ran(spent, self.taken())


def run_items(session: pytest.Session, items: list[pytest.Item], most: int = 1) -> int:
    """How many of some tests fail, up to so many; 0 is all."""
    session.items, session.config.option.maxfail = items, most
    with contextlib.suppress(session.Failed, session.Interrupted):
        pytest_runtestloop(session)
    return session.testsfailed
