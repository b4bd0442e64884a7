"""A fork of this process, its status and its CPU seconds."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

BROKEN = 70
PATIENCE = 30.0
"""Seconds that a process may take for one of the processor's, where others use the machine."""


class Status(NamedTuple):
    """The way it ended."""

    code: int
    seconds: float
    timed_out: bool


def forked(work: Callable[[], int], limit: float = 0.0) -> Status:
    """Run work in a fork of this process, with a limit of its CPU seconds if there is one."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        os.setsid()
        if limit:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 10))
        code = BROKEN
        try:
            code = min(work(), 60)
        except SystemExit as error:
            print(error, file=sys.__stderr__, flush=True)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    end, timed_out = time.monotonic() + PATIENCE * limit, False
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG if limit else 0)
        if ended:
            break
        if time.monotonic() > end:
            timed_out = True
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    timed_out |= code == -signal.SIGXCPU
    if code == -signal.SIGKILL and not timed_out:  # by a user, or where no memory is left
        code = BROKEN
    return Status(code, usage.ru_utime + usage.ru_stime, timed_out)
