"""Limits of processes: signals that a child never sees, and memory that may be mapped."""

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
"""Bytes of address space that JAX or PyTorch take before they compute anything: with 2 GiB,
importing PyTorch fails and a thread of XLA ends the process."""


@contextmanager
def signals_withheld(*signals: signal.Signals) -> Iterator[None]:
    """Withhold signals from processes started in this context, even before their own code runs; this
    process sees the signals afterwards.

    Ignoring the signals in the new process would be too late: its imports take seconds, in which
    Ctrl-C prints a traceback of `multiprocessing`. On Windows, which has no such masks, this does
    nothing.
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
    """Check that `ulimit -v` leaves room to load JAX or PyTorch. ConfigError: it does not."""
    if resource is None:
        return
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and most < LEAST_MAPPED:
        raise ConfigError(
            f"this process may map {most / 2**30:.1f} GiB (ulimit -v), but JAX and PyTorch take"
            f" {LEAST_MAPPED / 2**30:.0f} before they compute anything; raise the limit or set none"
        )
