"""One pytest process that collects a group of tests once, and forks itself for every mutant.

A mutant in the body of a function takes the place of that function's code in a fork of the process that
has collected; any other is imported by an interpreter of its own. Its file in the copy of the repository
is the mutant's as well, so that the commands that tests start have it, too.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from evidence.core_mutants.draw import Mutant
from evidence.core_mutants.failures import Failures
from evidence.core_mutants.fork import BROKEN, forked
from evidence.core_mutants.functions import Functions
from evidence.core_mutants.lines import Lines, Ran, run_items
from tests.support.cost import NEW, budgets

EVERY_CASE = "--share=all"
"""The exhaustive cases, too: each kind of layer is one of them."""
SLOWER, SLACK = 5.0, 20.0
"""A mutant is ended, and killed, after this many times its tests' CPU seconds, and these on top."""
_NO_TESTS = pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED


class Job(NamedTuple):
    """A mutant of a file."""

    file: str
    mutant: Mutant


class Outcome(NamedTuple):
    """The fate of a mutant."""

    by: str
    """The first test that fails, or `time`; empty if none does."""
    seconds: float
    """CPU seconds of its processes."""


Note = Callable[[Job, Outcome], None]


class Session:
    """The tests of a group, which judge mutants of the files in `copy`.

    Args:
        rare: by the exhaustive cases as well, where no other test fails.
        end: by the monotonic clock, when no other mutant is begun.
    """

    def __init__(
        self, copy: Path, tests: Iterable[str], note: Note, rare: bool = True, end: float = math.inf
    ) -> None:
        self.copy, self._tests, self._note = copy, [f"tests/{each}" for each in tests], note
        self._rounds, self._end = (False, True) if rare else (False,), end
        self._alive: list[Job] = []
        self._lines = Lines()
        self._seconds: defaultdict[Job, float] = defaultdict(float)
        self._turn = 0

    def judge(self, jobs: list[Job]) -> None:
        """Run the tests against each mutant, and tell what becomes of it.

        Raises:
            SystemExit: no tests can be run.
        """
        self._alive = list(jobs)

        def work() -> int:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            argv = ["-n", "0", "-q", "-p", "no:cacheprovider", EVERY_CASE, *self._tests]
            with self._lines.listening(self.copy, {job.file for job in jobs}):
                return int(pytest.main(argv, [self, Failures(self.copy / "failed")]))

        if code := forked(work).code:
            raise SystemExit(f"{', '.join(self._tests)}: pytest ends with status {code}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the mutants in the place of the tests, by forks of this process."""
        session.testsfailed = 0  # a file that cannot be imported
        (self.copy / "failed").unlink(missing_ok=True)
        self._session, self._at_import = session, self._lines.taken()
        self._functions = Functions(self.copy)
        every = list(session.items)
        for rare in self._rounds:
            self._round([item for item in every if rare == bool(item.get_closest_marker("exhaustive"))])
        for job in [] if self._spent else self._alive:
            self._note(job, Outcome("", round(self._seconds[job], 2)))
        return True

    @property
    def _spent(self) -> bool:
        return time.monotonic() > self._end

    def _round(self, items: list[pytest.Item]) -> None:
        """File by file, cheap ones first: the tests that run a mutant's line, while it lives."""
        files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.nodeid.partition("::")[0]].append(item)
        cost = {file: budgets().get(file, NEW) for file in files}
        order = sorted(files, key=cost.__getitem__)
        for file in order:
            if any(job.mutant.function for job in self._alive) and not self._spent:
                tests = self._measured(files[file])
                for job in [job for job in self._alive if job.mutant.function]:
                    ran = [
                        item
                        for item in files[file]
                        if item.nodeid in tests
                        and not job.mutant.lines.isdisjoint(tests[item.nodeid].lines.get(job.file, ()))
                    ]
                    self._try(job, ran, False, sum(tests[item.nodeid].seconds for item in ran))
        for job in list(self._alive):
            at_import = not job.mutant.lines.isdisjoint(self._at_import.get(job.file, ()))
            if at_import or not job.mutant.function:
                self._try(
                    job, [item for file in order for item in files[file]], True, sum(cost.values())
                )

    def _measured(self, items: list[pytest.Item]) -> dict[str, Ran]:
        """Run tests without a mutant: what each costs, and which lines of the core it runs.

        One that fails judges nobody, and its name is printed.
        """
        path = self.copy / "measured.json"
        status = forked(lambda: self._lines.measure(self._session, items, path))
        (self.copy / "failed").unlink(missing_ok=True)
        if status.code:
            os._exit(status.code)
        return Lines.read(path)

    def _try(self, job: Job, items: list[pytest.Item], anew: bool, seconds: float) -> None:
        """Judge a mutant by tests, which cost so many seconds; `anew`: by an interpreter of its own."""
        if not items or self._spent:
            return
        path = self.copy / job.file
        source, stat = path.read_text(), path.stat()
        self._turn += 1
        path.write_text(job.mutant.source)
        os.utime(path, (stat.st_atime, stat.st_mtime + self._turn))  # no compiled file passes for it
        try:
            status = forked(lambda: self._run(job, items, anew), SLACK + SLOWER * seconds)
        finally:
            path.write_text(source)
            os.utime(path, (stat.st_atime, stat.st_mtime))
        self._seconds[job] += status.seconds
        if status.code in (BROKEN, *_NO_TESTS) and not (self.copy / "failed").exists():
            raise SystemExit(f"{job.file}:{job.mutant.line}: could not be judged")
        if status.code:
            by = "time" if status.timed_out else _failed(self.copy)
            self._alive.remove(job)
            self._note(job, Outcome(by, round(self._seconds[job], 2)))

    def _run(self, job: Job, items: list[pytest.Item], anew: bool) -> int:
        """Run tests in a fork until one fails; return the number of failures."""
        import jax

        # programs of mutants are of no use to anybody
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        self._lines.end()
        if anew or not self._functions.replace(job.file, job.mutant.tree, job.mutant.function):
            argv = [sys.executable, "-m", "pytest", "-n0", "-xq", "-p", "no:cacheprovider"]
            noting = ["-p", "evidence.core_mutants.failures"]
            os.execv(sys.executable, [*argv, *noting, EVERY_CASE, *[item.nodeid for item in items]])
        return run_items(self._session, items)


def _failed(copy: Path) -> str:
    path = copy / "failed"
    if not path.exists():
        return "an error before any test"
    name = path.read_text()
    path.unlink()
    return name
