"""The times of checkpoints besides the recipe's: after some time, or a number of steps."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from vit_config import ConfigError

USUAL = "10m"
NEVER = "never"
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class SaveEvery(NamedTuple):
    """The most work that may be lost; None for no such limit."""

    seconds: float | None = None
    steps: int | None = None


NO_LIMIT = SaveEvery()


def read_save_every(text: str) -> SaveEvery:
    """Parse ``10m``, ``500steps``, both with a comma between, or ``never``.

    Raises:
        ConfigError: the text is something else.
    """
    if text == NEVER:
        return NO_LIMIT
    limits: dict[str, float] = {}
    for part in text.split(","):
        read = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h|steps?)\s*", part)
        unit = "steps" if read and read[2].startswith("step") else "seconds"
        number = float(read[1]) * SECONDS.get(read[2], 1.0) if read else 0.0
        if number <= 0 or unit in limits or (unit == "steps" and number % 1):
            raise ConfigError(
                f"--save-every {text}: give a time, such as 90s, 10m or 2h, a number of steps, such as"
                " 500steps, both with a comma between, or never"
            )
        limits[unit] = number
    steps = limits.get("steps")
    return SaveEvery(limits.get("seconds"), None if steps is None else int(steps))


class Due:
    """A check whether a checkpoint is due, called after every step, and told of every checkpoint.

    Args:
        every: the most work that may be lost.
        agree: for processes that train together: given whether this process finds it is time,
            returns what the leader finds; None for a process alone. It waits for all processes, so
            it is called at logged steps only.
    """

    def __init__(self, every: SaveEvery, agree: Callable[[bool], bool] | None = None) -> None:
        self._every, self._agree = every, agree
        self.saved()

    def saved(self) -> None:
        """Note that a checkpoint has been written, or that the run begins."""
        self._since = time.monotonic()

    def __call__(self, step: int, logs: bool) -> bool:
        """Return whether a checkpoint is due after this step, which the log has a line for if `logs`."""
        seconds, steps = self._every
        if steps is not None and step % steps == 0:
            return True
        if seconds is None or (self._agree and not logs):
            return False
        late = time.monotonic() - self._since >= seconds
        return self._agree(late) if self._agree else late
