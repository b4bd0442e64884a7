"""One side in a process of its own: ``python -m evidence.bench.worker SIDE MODEL BATCH DTYPE ROW``.

It reads ``forward`` or ``step`` from each line of its input, runs it ROW times in a row, waits for the
last and prints one JSON line, with the time of one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib.metadata import version
from typing import cast

from evidence.bench.sides import Dtype, make_side
from vit_config.errors import USER_ERRORS, first_line


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _library() -> str:
    """Return the library that compiles or runs the side, with its version."""
    name = "jaxlib" if "jaxlib" in sys.modules else "torch"
    return f"{name} {version(name)}"


def main(argv: list[str]) -> int:
    """Serve until the input ends; report a side that cannot be made in one line."""
    replies, sys.stdout = sys.stdout, sys.stderr  # libraries print, too
    say = lambda reply: print(json.dumps(reply), file=replies, flush=True)  # noqa: E731
    name, model, batch_size, dtype, in_a_row = argv
    try:
        side = make_side(name, model, int(batch_size), cast(Dtype, dtype))
    except (*USER_ERRORS, ModuleNotFoundError) as error:
        say({"error": str(error)})
        return 2
    say({"device": side.device, "library": _library()})
    for line in sys.stdin:
        started, used = time.perf_counter(), _cpu_seconds()
        try:
            for _ in range(int(in_a_row)):
                result = getattr(side, line.strip())()
            side.wait(result)
        except Exception as error:  # whatever a compiler dies of ends this side, not the others
            say({"error": f"{type(error).__name__}: {first_line(error)}"})
            return 2
        seconds, cpu = (
            taken / int(in_a_row) for taken in (time.perf_counter() - started, _cpu_seconds() - used)
        )
        # ru_maxrss is in KiB on Linux, in bytes on macOS
        unit = 1 if sys.platform == "darwin" else 1024
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        peak = own if side.peak_bytes is None else side.peak_bytes()
        say({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
