"""What each test file costs, in CPU seconds of its process and of the commands it starts, beside its
budget.

A machine is measured by a loop of fixed work, so that a slow one is not told that the tests grew. Of
every file `costs.json` keeps the CPU seconds it takes on a machine whose loop takes `LOOP`; a run of
the whole file that costs more than twice that, and `SLACK` seconds on top, fails. Exhaustive cases, of
which each run has another share, do not count. `--costs FILE` writes what was measured.
"""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BUDGETS = Path(__file__).parent / "costs.json"
LOOP = 0.25
"""CPU seconds that `loop` takes on the machine on which the budgets were measured."""
FACTOR, SLACK = 2.0, 20.0
"""A file pays for whatever nobody before it in its process has imported or compiled: the slack."""
NEW = 20.0
"""What a file that was not measured yet may cost."""
SHOWN = 15
KEY, SHARED = "cpu seconds", "cpu seconds of exhaustive cases"


def used() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def loop() -> float:
    """CPU seconds of fixed work, of the kind that tests do: Python and small arrays."""
    start = time.process_time()
    table: dict[int, int] = {}
    for i in range(400_000):
        table[i % 997] = table.get(i % 991, 0) + i
    x = np.linspace(0.0, 1.0, 90_000).reshape(300, 300)
    for _ in range(20):
        x = np.tanh(x * x.T)
    return time.process_time() - start


def budgets() -> dict[str, float]:
    """Test file -> CPU seconds."""
    return json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}


def over(costs: dict[str, float], limits: dict[str, float], pace: float) -> dict[str, float]:
    """The files above their limit, and that limit on a machine `pace` times as slow."""
    allowed = {file: pace * (FACTOR * limits.get(file, NEW) + SLACK) for file in costs if limits}
    return {file: limit for file, limit in allowed.items() if costs[file] > limit}


class Costs:
    """The plugin: measures in the workers, adds up and judges in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._costs: Counter[str] = Counter()
        self._shared = 0.0
        self._pace = 1.0
        self._over: dict[str, float] = {}
        self._last = used()

    def pytest_sessionstart(self) -> None:
        """Time the loop, where the report is written."""
        if not hasattr(self._config, "workerinput"):
            self._pace = max(1.0, min(loop() for _ in range(3)) / LOOP)

    def pytest_collection_finish(self) -> None:
        """What every process imports as it collects is no file's cost."""
        self._last = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item):
        """What was spent since the last report belongs to this test: fixtures too."""
        report = yield
        now = used()
        key = SHARED if item.get_closest_marker("exhaustive") else KEY
        report.user_properties = [(key, now - self._last)]
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up, by file."""
        spent: dict[str, Any] = dict(report.user_properties)
        self._costs[report.nodeid.partition("::")[0]] += spent.get(KEY, 0.0)
        self._shared += spent.get(SHARED, 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where a whole file broke its budget."""
        if hasattr(self._config, "workerinput") or self._config.option.collectonly:
            return
        if written := self._config.getoption("--costs"):
            rounded = {file: round(cost, 1) for file, cost in sorted(self._costs.items())}
            Path(written).write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
        self._over = over(self._costs, budgets(), self._pace)
        if self._over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The slowest files, and those over their budget."""
        if len(self._costs) < 2:
            return
        total, limits = sum(self._costs.values()) + self._shared, budgets()
        terminalreporter.section(f"{total:.0f} CPU seconds; the slowest files, and their budgets")
        for file, cost in self._costs.most_common(SHOWN):
            terminalreporter.write_line(f"{cost:7.1f} s {limits.get(file, NEW):7.1f} s  {file}")
        for file, limit in self._over.items():
            terminalreporter.write_line(
                f"ERROR {file} took {self._costs[file]:.1f} CPU seconds, its budget allows {limit:.1f}:"
                " make it cheaper, or measure anew (docs/testing.md)"
            )
