"""A plugin of pytest that notes the first test that fails, or file that cannot be imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


class Failures:
    """Notes the first that fails, and prints the files that cannot be imported."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write its name."""
        if report.failed and not self._path.exists():
            self._path.write_text(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print its name, and write it."""
        if report.failed:
            print(f"{report.nodeid} cannot be imported", file=sys.stderr, flush=True)
            if not self._path.exists():
                self._path.write_text(f"{report.nodeid} cannot be imported")


def pytest_configure(config: pytest.Config) -> None:
    """Note it in the repository's copy."""
    config.pluginmanager.register(Failures(config.rootpath / "failed"))
