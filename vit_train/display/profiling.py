"""A trace of some steps of a run, written by the framework's own profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

from vit_config import ConfigError

FOLDER = "profile"
"""Folder inside the run's folder; TensorBoard looks there."""


class Steps(NamedTuple):
    """Updates of a run, counted from 1, both ends included."""

    first: int
    last: int


def read_steps(text: str) -> Steps:
    """Parse ``A:B``.

    Raises:
        ConfigError: the text is something else.
    """
    match = re.fullmatch(r"(\d+):(\d+)", text)
    steps = Steps(int(match[1]), int(match[2])) if match else None
    if steps is None or not 1 <= steps.first <= steps.last:
        raise ConfigError(f"--profile {text}: give two numbers of steps, such as 10:12, counted from 1")
    return steps


class Profile:
    """A profiler started and ended between the steps of a loop; leaving the `with` block ends it, too.

    Args:
        steps: the steps to trace; None for none.
        trace: the framework's profiler, which writes into the folder that it is given.
        folder: the folder to write to.
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
        """Whether a trace has been started."""

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)

    def before(self, step: int) -> None:
        """Start to trace before the first step to trace, or before a later one where a run continues."""
        if self.steps and not self.written and self.steps.first <= step <= self.steps.last:
            self._running.enter_context(self._trace(self._folder))
            self.written = True

    def ends_after(self, step: int) -> bool:
        """Return whether this is the last step to trace; the caller then waits for the devices."""
        return self.written and self.steps is not None and step == self.steps.last

    def stop(self) -> None:
        """Write the trace."""
        self._running.close()
