"""One pytest process that collects a group of tests once, and forks itself for every mutant.

A mutant in the body of a function takes the place of that function's code in a fork of the process that
has collected; any other is imported by an interpreter of its own. Its file in the copy of the repository
is the mutant's as well, so that the commands that tests start have it, too.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
import types
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.main import pytest_runtestloop as run_items

from evidence.core_mutants.draw import Mutant, telling
from evidence.core_mutants.failures import Failures

EVERY_CASE = "--share=all"
"""The exhaustive cases, too: each kind of layer is one of them."""
SLOWER, SLACK = 5.0, 20.0
"""A mutant is ended, and killed, after this many times its tests' CPU seconds, and these on top."""
_BROKEN = 70
_NO_TESTS = pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED
PATIENCE = 30.0
"""Seconds that a process may take for one of the processor's, where others use the machine."""


class Job(NamedTuple):
    """A mutant of a file."""

    file: str
    mutant: Mutant


class Outcome(NamedTuple):
    """What became of a mutant."""

    by: str
    """The first test that fails, or `time`; empty if none does."""
    seconds: float
    """CPU seconds of its process."""


Told = Callable[[Job, Outcome], None]


class Session:
    """The tests of a group, which judge mutants of the files in `copy`.

    Args:
        end: by the monotonic clock, when no other mutant is begun.
    """

    def __init__(
        self,
        copy: Path,
        files: Iterable[str],
        tests: Iterable[str],
        told: Told,
        end: float = math.inf,
    ) -> None:
        self.copy, self._files = copy, tuple(files)
        self._tests, self._told = [f"tests/{each}" for each in tests], told
        self._known: dict[str, _Test] = {}
        self._turn, self._end = 0, end

    @property
    def spent(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() > self._end

    def judge(self, jobs: list[Job]) -> None:
        """Run the tests against each mutant, and tell what becomes of it.

        Raises:
            SystemExit: no tests can be run.
        """

        def work() -> int:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            argv = ["-n", "0", "-q", "-p", "no:cacheprovider", EVERY_CASE, *self._tests]
            return int(pytest.main(argv, [_Loop(self, jobs), Failures(self.copy / "failed")]))

        if code := _forked(work).code:
            raise SystemExit(f"{', '.join(self._tests)}: pytest ends with status {code}")

    def measure(self, session: pytest.Session) -> None:
        """Run every test without a mutant; note what each costs and which lines of the core it runs.

        One that fails judges nobody, and its name is printed.
        """
        measured, elsewhere = self.copy / "measured.json", self.copy / "sitecustomize.py"
        elsewhere.write_text("import builtins\nbuiltins._reached = lambda *_: None\n")  # for commands

        def work() -> int:
            lines = _Lines()
            session.config.pluginmanager.register(lines)
            for name in self._files:
                path = self.copy / name
                tree = telling(path.read_text(), name)
                path.write_text(ast.unparse(tree))  # for what is imported late
                _replace(path, tree)
            builtins._reached = lines.reached  # type: ignore[attr-defined]
            _run(session, session.items, most=0)
            measured.write_text(json.dumps(lines.found))
            return 0

        sources = {name: (self.copy / name).read_text() for name in self._files}
        status = _forked(work)
        for name, source in sources.items():
            (self.copy / name).write_text(source)
        (self.copy / "failed").unlink(missing_ok=True)
        elsewhere.unlink()
        if status.code:
            os._exit(status.code)
        self._known = {name: _Test(*each) for name, each in json.loads(measured.read_text()).items()}

    def of_job(self, job: Job, run: Callable[[list[str], bool], int]) -> None:
        """Judge one mutant by the tests that reach its line. If none fails: by all of their files, in an
        interpreter of its own, where what is made at import has the mutant as well."""
        path = self.copy / job.file
        source, stat = path.read_text(), path.stat()
        self._turn += 1
        path.write_text(job.mutant.source)
        os.utime(path, (stat.st_atime, stat.st_mtime + self._turn))  # no compiled file passes for it
        spent, by = 0.0, ""
        try:
            for anew, chosen in self._chosen(job):
                limit = SLACK + SLOWER * sum(self._known[each].seconds for each in chosen)
                status = _forked(lambda chosen=chosen, anew=anew: run(chosen, anew), limit)
                spent += status.seconds
                if status.code in (_BROKEN, *_NO_TESTS):
                    raise SystemExit(f"{job.file}:{job.mutant.line}: could not be judged")
                if status.code:
                    by = "time" if status.timed_out else _failed(self.copy)
                    break
        finally:
            path.write_text(source)
            os.utime(path, (stat.st_atime, stat.st_mtime))
        self._told(job, Outcome(by, round(spent, 2)))

    def _chosen(self, job: Job) -> Iterable[tuple[bool, list[str]]]:
        """The tests that run a mutant's line, cheap files first; and then, in an interpreter of its own,
        all of their files, or of the group where none is known to run it."""
        reach = {
            name
            for name, test in self._known.items()
            if not job.mutant.lines.isdisjoint(test.lines.get(job.file, ()))
        }
        costs: defaultdict[str, float] = defaultdict(float)
        for name in reach:
            costs[_file(name)] += self._known[name].seconds
        near = [name for name in self._known if _file(name) in costs] or list(self._known)
        order = {name: (costs[_file(name)], _file(name), at) for at, name in enumerate(self._known)}
        if reach and job.mutant.function:
            yield False, sorted(reach, key=order.__getitem__)
        yield True, sorted(near, key=order.__getitem__)


class _Test(NamedTuple):
    seconds: float
    lines: dict[str, list[int]]


class _Status(NamedTuple):
    code: int
    seconds: float
    timed_out: bool


class _Loop:
    """Runs the session's mutants in the place of the tests."""

    def __init__(self, owner: Session, jobs: list[Job]) -> None:
        self._owner, self._jobs = owner, jobs

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge every mutant by a fork of this process."""
        session.testsfailed = 0  # a file that cannot be imported
        items = {item.nodeid: item for item in session.items}
        self._owner.measure(session)
        for job in self._jobs:
            if self._owner.spent:
                break

            def run(chosen: list[str], anew: bool, job: Job = job) -> int:
                import jax

                # programs of mutants are of no use to anybody
                jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
                mutant, path = job.mutant, self._owner.copy / job.file
                if anew or not _replace(path, mutant.tree, mutant.function):
                    argv = [sys.executable, "-m", "pytest", "-n0", "-xq", "-p", "no:cacheprovider"]
                    noting = ["-p", "evidence.core_mutants.failures"]
                    os.execv(sys.executable, [*argv, *noting, EVERY_CASE, *chosen])
                return _run(session, [items[name] for name in chosen])

            self._owner.of_job(job, run)
        return True


class _Lines:
    """Seconds and lines of every test."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, dict[str, list[int]]]] = {}
        self._lines: defaultdict[str, set[int]] = defaultdict(set)
        self._failed: set[str] = set()

    def reached(self, name: str, line: int) -> None:
        """A test runs a line of a file."""
        self._lines[name].add(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take out one that fails."""
        if report.failed:
            print(f"{report.nodeid} fails without any mutant", file=sys.stderr, flush=True)
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        """Note what it runs."""
        self._lines.clear()
        start = time.process_time()
        try:
            return (yield)
        finally:
            spent = round(time.process_time() - start, 3)
            lines = {name: sorted(each) for name, each in self._lines.items()}
            if item.nodeid not in self._failed:
                self.found[item.nodeid] = spent, lines


def _run(session: pytest.Session, items: list[pytest.Item], most: int = 1) -> int:
    """How many of some tests fail, up to so many; 0 is all."""
    session.items, session.config.option.maxfail = items, most
    with contextlib.suppress(session.Failed, session.Interrupted):
        run_items(session)
    return session.testsfailed


def _replace(path: Path, tree: ast.Module, function: str | None = None) -> bool:
    """Whether the functions of a file, or the one, could be given the code of another tree."""
    if not any(getattr(each, "__file__", None) == str(path) for each in list(sys.modules.values())):
        return True  # imported when it is needed, from the file
    codes = [*_codes(compile(tree, str(path), "exec"))]
    new = {_place(code): code for code in codes if code.co_name != "<lambda>"}
    gc.unfreeze()
    found = [
        each
        for each in gc.get_objects()
        if type(each) is types.FunctionType
        and each.__code__.co_filename == str(path)
        and function in (None, each.__code__.co_qualname)
        and _place(each.__code__) in new
    ]
    try:
        for each in found:
            each.__code__ = new[_place(each.__code__)]
    except ValueError:  # the mutant takes no part in a variable outside of it
        return False
    return bool(found)


def _place(code: types.CodeType) -> tuple[str, int]:
    """The name and the first line of a function; one name may have several, as a property does."""
    return code.co_qualname, code.co_firstlineno


def _codes(code: types.CodeType) -> Iterable[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)


def _forked(work: Callable[[], int], limit: float = 0.0) -> _Status:
    """What a fork of this process comes to; with a limit, of its CPU seconds."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.setsid()
        if limit:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 10))
        code = _BROKEN
        try:
            code = min(work(), 60)
        except SystemExit as error:
            print(error, file=sys.__stderr__, flush=True)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    end, timed_out = time.monotonic() + PATIENCE * limit, False
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG if limit else 0)
        if ended:
            break
        if time.monotonic() > end:
            timed_out = True
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    timed_out |= code == -signal.SIGXCPU
    if code == -signal.SIGKILL and not timed_out:  # by a user, or where no memory is left
        code = _BROKEN
    return _Status(code, usage.ru_utime + usage.ru_stime, timed_out)


def _failed(copy: Path) -> str:
    path = copy / "failed"
    if not path.exists():
        return "an error before any test"
    name = path.read_text()
    path.unlink()
    return name


def _file(test: str) -> str:
    return test.partition("::")[0]
