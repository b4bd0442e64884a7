"""What processes may: not see a signal to all of a terminal's or a job's, map memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from vit_config.errors import ConfigError

try:
    import resource
except ImportError:  # on Windows, where there are no such limits
    resource = None

LEAST_MAPPED = 3 * 2**30
"""Bytes of addresses that JAX or PyTorch take before they compute anything: with 2 GiB, importing
PyTorch fails and a thread of XLA ends the process."""


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


def check_mapped() -> None:
    """ConfigError: this process may not map what loading JAX or PyTorch takes (``ulimit -v``)."""
    if resource is None:
        return
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and most < LEAST_MAPPED:
        raise ConfigError(
            f"this process may map {most / 2**30:.1f} GiB (ulimit -v), but JAX and PyTorch take"
            f" {LEAST_MAPPED / 2**30:.0f} before they compute anything; raise the limit or set none"
        )
