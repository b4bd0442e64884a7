"""The two sides of a comparison: a trace that is there already, or a model that can be run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from parity.measure.precision import Precision
from parity.measure.traces import Trace
from parity.verifier.diff.subject import Subject
from vit_config import ConfigError, InputError

_ONE_AT_A_TIME = threading.Lock()
"""Watching a model wraps its classes, and precision is a setting of the whole process."""


class Side(Protocol):
    """One of the two."""

    name: str
    """What the user calls it."""
    runs: bool
    """Whether it can be run, and so run again with nudged numbers."""
    subject: Callable[[], Subject]
    """Makes the model in this process, to be compared by its operations; raises InputError where it is
    not to be had here."""

    @property
    def notes(self) -> Sequence[str]:
        """What was done to it that its author may not expect; known when it was recorded."""
        ...

    def bind(self, count: int) -> None:
        """Take the first inputs of a function as parameters; what is none, or cannot be run, stays."""
        ...

    def record(self, out: Path, *, nudge: int | None = None) -> Trace:
        """Run it and write a trace at `out`; see `parity.verifier.diff.run_torch`."""
        ...


class Recorded:
    """A trace that somebody recorded."""

    runs = False
    notes = ()

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._trace = Trace(path)
        self.subject = partial(refuse, f"{path} is a recording, which holds no operations")

    def bind(self, count: int) -> None:
        """It was recorded as it is."""

    def record(self, out: Path, *, nudge: int | None = None) -> Trace:
        """What was recorded."""
        if nudge is not None:
            raise ConfigError(f"{self.name}: a trace cannot be run again")
        return self._trace


class InProcess:
    """A model that is run in this process."""

    runs = True

    def __init__(
        self, subject: Subject, *, dtype: str | None = None, precision: Precision = "highest"
    ) -> None:
        """Prepare a model; it is left alone.

        Args:
            dtype: what parameters and inputs are cast to; None leaves them.
        """
        self.name = subject.name
        self._dtype = dtype
        self._precision: Precision = precision
        self._prepare(subject)

    def _prepare(self, subject: Subject) -> None:
        self.subject = lambda: subject
        dtype, precision = self._dtype, self._precision
        if subject.framework == "torch":
            from parity.verifier.diff.run_torch import TorchRunner

            self._runner = TorchRunner(subject, dtype, precision)
        else:
            from parity.verifier.diff.run_jax import JaxRunner

            self._runner = JaxRunner(subject, dtype, precision)

    @property
    def notes(self) -> Sequence[str]:
        """Whether it was put into evaluation mode."""
        return self._runner.notes

    def bind(self, count: int) -> None:
        """Take the first inputs of a function as parameters."""
        self._prepare(self.subject().with_parameters(count))

    def record(self, out: Path, *, nudge: int | None = None) -> Trace:
        """Run it here."""
        with _ONE_AT_A_TIME:
            self._runner.run(out, nudge=nudge)
        return Trace(out)


def refuse(why: str) -> Subject:
    """Say that there is no model in this process.

    Raises:
        InputError: always.
    """
    raise InputError(why)
