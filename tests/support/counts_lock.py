"""A file of what compiled steps consist of: none may have more, unless a line in the file says why."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from parity.measure.versions.seen import numbers

Counts = dict[str, int]


@dataclass(frozen=True)
class Lock:
    """Steps by name, counted for one platform by each compiler that was run."""

    path: Path
    platform: str
    """What the steps are compiled for, such as ``cpu`` or ``v5e:2x4``."""
    compiler: tuple[str, ...]
    """The packages whose versions decide what is counted."""
    command: str
    """What rewrites the file, without its --why."""
    names: Collection[str]
    count: Callable[[str], Counts]
    """Compiles a step; what it consists of."""

    def check(self, name: str) -> None:
        """Compile a step and compare.

        Raises:
            AssertionError: it has more of something than the file allows for this compiler.
            pytest.skip.Exception: the file has no counts of this compiler, which counts otherwise.
        """
        counted = self.of_this_compiler()
        if counted is None:
            pytest.skip(reason="no counts of this compiler are written down; tools/step_counts.py")
        hint = f'; if it must be so, run {self.command} --why "REASON" (the last: {counted["why"]})'
        more = too_many(self.count(name), counted["steps"][name])
        assert not more, f"{name}: {more}{hint}"

    def write(self, why: str) -> None:
        """Compile all steps and rewrite what the file has of this compiler."""
        steps = {name: self.count(name) for name in self.names}
        own = {**self._versions(), "why": why, "steps": steps}
        others = [each for each in self.compilers() if not self._is_own(each)]
        compilers = sorted([*others, own], key=lambda each: [numbers(each[p]) for p in self.compiler])
        lock = {"platform": self.platform, "compilers": compilers}
        self.path.write_text(json.dumps(lock, indent=1) + "\n")

    def compilers(self) -> list[dict[str, Any]]:
        """What the file has of each compiler: its versions, why it has these counts, and the counts."""
        return json.loads(self.path.read_text())["compilers"]

    def of_this_compiler(self) -> dict[str, Any] | None:
        """What the file has of the one that is installed."""
        return next(filter(self._is_own, self.compilers()), None)

    def _is_own(self, counted: dict[str, Any]) -> bool:
        return self._versions().items() <= counted.items()

    def _versions(self) -> dict[str, str]:
        return {name: version(name) for name in self.compiler}


def too_many(actual: Counts, allowed: Counts) -> dict[str, tuple[int, int]]:
    """What there is more of than allowed: name -> (found, allowed)."""
    return {name: (n, allowed.get(name, 0)) for name, n in actual.items() if n > allowed.get(name, 0)}
