"""Which lines of some files each test runs, and what it costs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.main import pytest_runtestloop

from evidence.core_mutants.draw import telling


class Ran(NamedTuple):
    """The lines and the cost of a test."""

    seconds: float
    lines: dict[str, list[int]]


Note = Callable[[str, int], None]


class Telling(SourceFileLoader):
    """A loader of a file whose functions say which lines they run."""

    def __init__(self, fullname: str, path: str, name: str, note: Note) -> None:
        super().__init__(fullname, path)
        self._name, self._note = name, note

    def get_code(self, fullname: str) -> types.CodeType:
        """Never a compiled file's."""
        tree = telling(Path(self.path).read_text(encoding="utf-8"), self._name)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run it, with what its functions call."""
        vars(module)["_reached"] = self._note
        super().exec_module(module)


class TellingFinder(MetaPathFinder):
    """Finds files, by their paths, for `Telling`."""

    def __init__(self, names: dict[str, str], note: Note) -> None:
        self._names, self._note = names, note

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """A file's module, if it is one of these."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or spec.origin not in self._names:
            return None
        spec.loader = Telling(fullname, spec.origin, self._names[spec.origin], self._note)
        return spec


class Lines:
    """A plugin of pytest that notes seconds and lines of every test."""

    def __init__(self) -> None:
        self._ran: dict[str, Ran] = {}
        self._lines: defaultdict[str, set[int]] = defaultdict(set)
        self._failed: set[str] = set()
        self._listens = True

    @contextlib.contextmanager
    def listening(self, copy: Path, files: Iterable[str]) -> Iterator[None]:
        """Functions of a copy's files say which lines they run, in this process and its forks."""
        finder = TellingFinder({str(copy / each): each for each in files}, self._note)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)

    def _note(self, name: str, line: int) -> None:
        if self._listens:
            self._lines[name].add(line)

    def taken(self) -> dict[str, list[int]]:
        """The lines that ran since the last call."""
        lines = {name: sorted(each) for name, each in self._lines.items()}
        self._lines.clear()
        return lines

    def end(self) -> None:
        """Stop noting lines."""
        self._listens = False

    def measure(self, session: pytest.Session, items: list[pytest.Item], path: Path) -> int:
        """Run tests and write what each does."""
        session.config.pluginmanager.register(self)
        run_items(session, items, most=0)
        path.write_text(json.dumps(self._ran))
        return 0

    @staticmethod
    def read(path: Path) -> dict[str, Ran]:
        """Read what `measure` wrote, by each test's name."""
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
                self._ran[item.nodeid] = Ran(spent, self.taken())


def run_items(session: pytest.Session, items: list[pytest.Item], most: int = 1) -> int:
    """Run tests until so many fail, 0 for all; return the number of failures."""
    session.items, session.config.option.maxfail = items, most
    with contextlib.suppress(session.Failed, session.Interrupted):
        pytest_runtestloop(session)
    return session.testsfailed
