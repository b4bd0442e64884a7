"""The range of versions of a library in which its private facts were seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version as installed

from vit_config.terminal import complain


@dataclass(frozen=True)
class Seen:
    """A library, with the oldest and the newest version that were tested."""

    library: str
    oldest: str
    newest: str

    @property
    def version(self) -> str:
        """The installed version."""
        return installed(self.library)

    @property
    def is_known(self) -> bool:
        """Whether the installed version lies in the tested range."""
        return numbers(self.oldest) <= numbers(self.version) <= numbers(self.newest)

    def upto(self, last: str) -> bool:
        """Return whether the installed version is `last` or older."""
        return numbers(self.version) <= numbers(last)

    def say_if_unknown(self, consequence: str) -> bool:
        """Return whether the installed version is known; else warn once, in one line, of the
        consequence."""
        if self.is_known:
            return True
        _say(self, consequence)
        return False

    def __str__(self) -> str:
        return f"{self.library} {self.oldest} to {self.newest}"


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers, (0, 12, 0, 1) for "0.12.0.1"; a candidate counts as its release."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(each) for each in release[0].split(".")] if release else []
    while parts and not parts[-1]:  # 0.12 is 0.12.0
        parts.pop()
    return tuple(parts)


@cache
def _say(seen: Seen, consequence: str) -> None:
    complain(f"{seen.library} {seen.version} is not among what was tested, {seen}: {consequence}")
