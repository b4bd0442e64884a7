"""The process of one side: builds its model once, and runs it as it is told, line by line.

    python -m parity.verifier.diff.server

Standard input has one JSON object a line: first the order of what to build, then the runs. Each is
answered by one line: what there is to note, or what went wrong.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from vit_config.errors import USER_ERRORS


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a user's model prints is no answer
    server = Server()
    for line in sys.stdin:
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


class Server:
    """Builds one model, and runs it."""

    def __init__(self) -> None:
        self._side: Any = None

    def answer(self, said: dict[str, Any]) -> dict[str, Any]:
        """Obey; what to reply."""
        try:
            from parity.verifier.operations.mistakes import warnings_of_what_works

            with warnings_of_what_works():
                self._obey(said)
        except USER_ERRORS as error:
            return {"error": type(error).__name__, "message": str(error)}
        except (Exception, SystemExit) as error:
            return self._refusal(error)
        return {"notes": list(self._side.notes)}

    def _refusal(self, error: BaseException) -> dict[str, Any]:
        """What to reply where something failed: the user's own model, or this environment."""
        try:
            from parity.verifier.operations.mistakes import message_of, mistake
        except ModuleNotFoundError:  # it lacks what everything here needs
            return {"error": "ConfigError", "message": f"{sys.executable}: {error}"}
        said = mistake(error, *self._called())
        if said is None and isinstance(error, ModuleNotFoundError):
            return {"error": "ConfigError", "message": f"{sys.executable}: {message_of(error)}"}
        said = said or f"{type(error).__name__}: {message_of(error)}"
        return {"error": "InputError", "message": said}

    def _called(self) -> tuple[Any, ...]:
        """The model with its arguments, once there is one."""
        if self._side is None:
            return ()
        subject = self._side.subject()
        return subject.model, (*(subject.variables or ()), *subject.args), subject.kwargs

    def _obey(self, said: dict[str, Any]) -> None:
        from parity.verifier.diff.build import Order, build
        from parity.verifier.diff.sides import InProcess

        if "build" in said:
            order = Order(**said["build"])
            self._side = InProcess(build(order), dtype=order.dtype, precision=order.precision)  # type: ignore[arg-type]
            return
        if "bind" in said:
            self._side.bind(said["bind"])
            return
        self._side.record(Path(said["out"]), nudge=said["nudge"])


if __name__ == "__main__":
    main()
