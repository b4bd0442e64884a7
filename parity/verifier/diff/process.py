"""A side that runs in a process of its own, in an environment of its own if need be."""

from __future__ import annotations

import json
import subprocess
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from parity.measure.traces import Trace
from parity.verifier.diff.build import Order, build
from parity.verifier.diff.sides import refuse
from vit_config import ConfigError, InputError, errors
from vit_config.other_python import command


class InOwnProcess:
    """A model that another Python builds and runs; the two sides need not share an environment."""

    runs = True

    def __init__(self, order: Order, python: str | Path | None = None) -> None:
        """Start the process; the model is built when it is first run.

        Args:
            python: the interpreter; this one by default. Of this project it needs the code alone,
                which it is told where to find.

        Raises:
            ConfigError: there is no such interpreter.
        """
        self.name = order.name
        self._order = order
        away = f"{order.name} runs in another environment"
        self.subject = partial(build, order) if python is None else partial(refuse, away)
        self._built = False
        self.notes: list[str] = []
        try:
            self._process = subprocess.Popen(
                command("parity.verifier.diff.server", python=python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise ConfigError(
                f"{python}: {error.strerror}; give the path of a Python interpreter"
            ) from None
        weakref.finalize(self, _end, self._process)

    def bind(self, count: int) -> None:
        """Take the first inputs of a function as parameters, there and here."""
        self._ask({"bind": count})
        subject = self.subject
        self.subject = lambda: subject().with_parameters(count)

    def record(self, out: Path, *, nudge: int | None = None) -> Trace:
        """Run the model there."""
        if not self._built:
            self.notes = self._ask({"build": self._order.model_dump()})
            self._built = True
        self._ask({"out": str(out), "nudge": nudge})
        return Trace(out)

    def _ask(self, question: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            raise InputError(
                f"{self.name}: its process ended with status {status}; what it printed is above"
            )
        answer = json.loads(line)
        if "error" in answer:
            said = answer["message"]
            kind = getattr(errors, answer["error"], InputError)
            raise kind(said if said.startswith(self.name) else f"{self.name}: {said}")
        return answer.get("notes", [])


def _end(process: subprocess.Popen) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):  # of a process that ended by itself
            if pipe:
                pipe.close()
    process.terminate()
    process.wait()
