"""A program that an interpreter of another environment builds, records and runs.

    python -m parity.verifier.programs.remote

Its operations stay in that process. The copies on this side hold names, lines and values, and ask the
process to run an operation again.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar

from parity.verifier.programs.backward import Weights, record_gradients
from parity.verifier.programs.build import BuildOrder, build_from
from parity.verifier.programs.mistakes import message_of
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.programs.sides import GivenSide, record, taken_apart
from vit_config import ConfigError, InputError, errors
from vit_config.errors import USER_ERRORS, first_line
from vit_config.other_python import command


class Away:
    """A side in a process of its own."""

    module: ClassVar = "parity.verifier.programs.remote"
    """What the process runs."""

    def __init__(
        self, order: BuildOrder, python: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        """Start the process; the model is built when it is first recorded.

        Args:
            order: what to build.
            python: the interpreter. Its environment need not contain this project; it is told where to
                find the code.
            settings: environment variables of the process, besides those of this one.

        Raises:
            ConfigError: there is no such interpreter.
        """
        self.name = order.name
        self.order = order
        self._said = TemporaryFile()  # noqa: SIM115 - until the process ends; a failure quotes its end
        weakref.finalize(self, self._said.close)
        try:
            self._process = subprocess.Popen(
                command(self.module, python=python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env={**os.environ, **(settings or {})},
            )
        except OSError as error:
            raise ConfigError(
                f"{python}: {error.strerror}; give the path of a Python interpreter"
            ) from None
        weakref.finalize(self, _end, self._process)

    def record(self, name: str, **options: Any) -> Program:
        """Record the program, as `sides.record` does."""
        return self._here(self.ask("record", self.order, name, options))

    def differentiate(self, weights: Weights, name: str) -> Program:
        """Record the gradients, as `operations.backward.record_gradients` does."""
        return self._here(self.ask("differentiate", weights, name))

    def _here(self, answer: tuple[int, Program]) -> Program:
        number, program = answer
        for op in program.operations:
            if op.run is not None:
                op.run = partial(self.ask, "run", number, op.index)
        return program

    def ask(self, *question: Any) -> Any:
        """Send a method of the other process' `Server` with its arguments, and return the answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            pickle.dump(question, stdin)
            stdin.flush()
            kind, answer = pickle.load(stdout)
        except (BrokenPipeError, EOFError):
            ended = self._process.wait()
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").split("\n")
            last = next((each.strip() for each in reversed(said) if each.strip()), "it printed nothing")
            raise InputError(f"{self.name}: its process ended with status {ended}: {last}") from None
        except (pickle.UnpicklingError, ValueError) as error:  # of another program, or behind a banner
            raise InputError(
                f"{self.name}: its process answers what this package does not ({first_line(error)});"
                " give a Python interpreter that prints nothing by itself"
            ) from None
        if kind == "answer":
            return answer
        if kind == "failure":  # an operation that was run again failed
            raise ValueError(answer)
        message = answer if answer.startswith(self.name) else f"{self.name}: {answer}"
        raise getattr(errors, kind, InputError)(message)


def record_side(side: GivenSide | Away, name: str, **options: Any) -> Program:
    """Record a side, in this process or in its own."""
    return side.record(name, **options) if isinstance(side, Away) else record(side, name, **options)


def record_side_gradients(side: GivenSide | Away, weights: Weights, name: str) -> Program:
    """Record a side's gradients, in this process or in its own."""
    if isinstance(side, Away):
        return side.differentiate(weights, name)
    return record_gradients(side, weights, name)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(BrokenPipeError):  # the process has ended by itself
            if pipe:
                pipe.close()
    process.terminate()
    process.wait()


@dataclass(frozen=True)
class _Kept:
    """An operand that stays in the other process, which alone can read it."""

    position: int


class Server:
    """The other process: it builds one side, records it, and runs its operations."""

    def __init__(self) -> None:
        self._given: GivenSide | None = None
        self._programs: list[list[Operation]] = []

    def record(self, order: BuildOrder, name: str, options: dict[str, Any]) -> tuple[int, Program]:
        """Build the side if it is not built yet, and return the recorded program with its number."""
        self._given = self._given or taken_apart(build_from(order), order.name)
        return self._away(record(self._given, name, **options))

    def differentiate(self, weights: Weights, name: str) -> tuple[int, Program]:
        """Return the recorded program of the gradients with its number."""
        assert self._given is not None
        return self._away(record_gradients(self._given, weights, name))

    def run(self, number: int, index: int, operands: Sequence[Any]) -> Any:
        """Run an operation and return its value."""
        op = self._programs[number][index]
        assert op.run is not None
        return op.run([op.operands[e.position] if isinstance(e, _Kept) else e for e in operands])

    def _away(self, program: Program) -> tuple[int, Program]:
        self._programs.append(program.operations)
        operations = [
            replace(
                op,
                run=None if op.run is None else str,  # any function: the other side replaces it
                operands=tuple(
                    each if _travels(each) else _Kept(i) for i, each in enumerate(op.operands)
                ),
                extra={key: each for key, each in op.extra.items() if _travels(each)},
            )
            for op in program.operations
        ]
        return len(self._programs) - 1, replace(program, operations=operations)


def _travels(value: Any) -> bool:
    """Return whether a value can be read in an environment without the frameworks."""
    try:
        written = pickle.dumps(value)
    except Exception:
        return False
    return not any(each in written for each in (b"jax", b"torch", b"flax"))


def serve(server: Server) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a user's model prints must not mix with the answers
    while True:
        try:
            verb, *question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = "answer", getattr(server, verb)(*question)
        except USER_ERRORS as error:
            answer = type(error).__name__, str(error)
        except Exception as error:
            answer = "failure" if verb == "run" else "InputError", message_of(error)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    from parity.verifier.programs import remote

    remote.serve(remote.Server())
