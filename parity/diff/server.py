"""The process of one side: builds its model once, and runs it as it is told, line by line.

    python -m parity.diff.server

Standard input has one JSON object a line: first the order of what to build, then the runs. Each is
answered by one line: ``{}``, or what went wrong.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from vit_config.errors import USER_ERRORS


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a user's model prints is no answer
    side = None
    for line in sys.stdin:
        try:
            side = _obey(json.loads(line), side)
            answer: dict[str, Any] = {}
        except USER_ERRORS as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        except ModuleNotFoundError as error:
            answer = {"error": "ConfigError", "message": f"{sys.executable}: {_first_line(error)}"}
        except Exception as error:
            # the user's own model failed: that is what has to be said, not where in here it was called
            answer = {"error": "InputError", "message": f"{type(error).__name__}: {_first_line(error)}"}
        _say(answers, answer)


def _obey(said: dict[str, Any], side: Any) -> Any:
    from parity.diff.build import Order, build
    from parity.diff.feed import Feed
    from parity.diff.sides import InProcess

    if "build" in said:
        order = Order(**said["build"])
        return InProcess(build(order), dtype=order.dtype, precision=order.precision)  # type: ignore[arg-type]
    feed = said["feed"] and Feed.from_json(said["feed"])
    side.record(Path(said["out"]), feed=feed, nudge=said["nudge"])
    return side


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
