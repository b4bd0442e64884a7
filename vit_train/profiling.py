"""A trace of some steps of a run, as each framework's own profiler writes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

from vit_config import ConfigError

FOLDER = "profile"
"""In the folder of the run; TensorBoard looks there."""


class Steps(NamedTuple):
    """Updates of a run, counted from 1, both ends included."""

    first: int
    last: int


def read_steps(text: str) -> Steps:
    """Understand ``A:B``.

    Raises:
        ConfigError: it is something else.
    """
    found = re.fullmatch(r"(\d+):(\d+)", text)
    steps = Steps(int(found[1]), int(found[2])) if found else None
    if steps is None or not 1 <= steps.first <= steps.last:
        raise ConfigError(f"--profile {text}: give two numbers of steps, such as 10:12, counted from 1")
    return steps


class Profile:
    """Starts and ends a profiler between the steps of a loop; leaving the `with` block ends it, too.

    Args:
        steps: which ones to trace; None for none.
        trace: the framework's profiler, which writes into the folder that it is given.
        folder: where.
    """

    def __init__(
        self,
        steps: Steps | None,
        trace: Callable[[Path], AbstractContextManager[None]],
        folder: Path,
    ) -> None:
        self.steps, self._trace, self._folder = steps, trace, folder
        self._running = ExitStack()
        self.written = False
        """Whether there is a trace."""

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)

    def before(self, step: int) -> None:
        """Told which step comes next; one that a run continues in the middle of is traced from there."""
        if self.steps and not self.written and self.steps.first <= step <= self.steps.last:
            self._running.enter_context(self._trace(self._folder))
            self.written = True

    def ends_after(self, step: int) -> bool:
        """Whether this is the last to trace, for which the devices have to be waited."""
        return self.written and self.steps is not None and step == self.steps.last

    def stop(self) -> None:
        """Write the trace."""
        self._running.close()
