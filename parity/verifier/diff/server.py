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

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Obey; what to reply."""
        try:
            self._obey(order)
        except USER_ERRORS as error:
            return {"error": type(error).__name__, "message": str(error)}
        except ModuleNotFoundError as error:
            return {"error": "ConfigError", "message": f"{sys.executable}: {_first_line(error)}"}
        except (Exception, SystemExit) as error:
            # the user's own model failed: that is what has to be said, not where in here it was called
            from parity.verifier.operations.mistakes import message_of, mistake

            said = mistake(error, *self._called()) or f"{type(error).__name__}: {message_of(error)}"
            return {"error": "InputError", "message": said}
        return {"notes": list(self._side.notes)}

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
        self._side.record(Path(said["out"]), nudge=said["nudge"])


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


if __name__ == "__main__":
    main()
