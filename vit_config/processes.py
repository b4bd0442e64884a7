"""Processes that are started so that a signal to all of a terminal's or a job's does not reach them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def signals_withheld(*signals: signal.Signals) -> Iterator[None]:
    """A process started in here never sees these signals, not even before its own code runs; this one
    sees them afterwards.

    Ignoring them in the new process would be too late: importing what it runs takes seconds, in which
    Ctrl-C prints a traceback of `multiprocessing`. On Windows, which has no such masks, nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its first start would end with SIGINT and SIGTERM let through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
