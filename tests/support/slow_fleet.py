"""The command line with workers that convert two checkpoints each, then hang: a run to catch at work."""

import signal
import sys
import time
from importlib import import_module
from typing import Any

from parity.cli import main
from parity.porting.fleet.work import Conversion, TaskOutcome, convert_one

_done: list[TaskOutcome] = []


def convert_two(task: Conversion, tell: Any) -> TaskOutcome:
    """What a worker does: two checkpoints, and the next never ends."""
    if len(_done) == 2:
        time.sleep(600)
    outcome = convert_one(task, tell)
    _done.extend([outcome] * (outcome.status == "done"))
    return outcome


def command() -> None:
    """`parity`, with these workers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts with &
    import_module("parity.porting.fleet.run_manifest").convert_one = convert_two
    sys.exit(main(sys.argv[1:]))
