"""A file of what compiled steps consist of: none may have more, unless a line in the file says why."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

Counts = dict[str, int]


@dataclass(frozen=True)
class Lock:
    """Steps by name, counted by one compiler for one platform."""

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
            AssertionError: it has more of something than the file allows, or the file is of another
                compiler.
        """
        lock = json.loads(self.path.read_text())
        hint = f'; if it must be so, run {self.command} --why "REASON" (the last: {lock["why"]})'
        assert self._versions().items() <= lock.items(), "another compiler counts otherwise" + hint
        more = too_many(self.count(name), lock["steps"][name])
        assert not more, f"{name}: {more}{hint}"

    def write(self, why: str) -> None:
        """Compile all steps and rewrite the file."""
        steps = {name: self.count(name) for name in self.names}
        lock = {"why": why, "platform": self.platform, **self._versions(), "steps": steps}
        self.path.write_text(json.dumps(lock, indent=1) + "\n")

    def _versions(self) -> dict[str, str]:
        return {name: version(name) for name in self.compiler}


def too_many(found: Counts, allowed: Counts) -> dict[str, tuple[int, int]]:
    """What there is more of than allowed: name -> (found, allowed)."""
    return {name: (n, allowed.get(name, 0)) for name, n in found.items() if n > allowed.get(name, 0)}
