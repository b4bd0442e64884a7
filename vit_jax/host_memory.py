"""Memory that a step on a CPU frees is kept for the next one."""

import ctypes
import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec

import jax

# the options of glibc's mallopt, from its malloc.h
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1  # an int that glibc takes for the largest size; 2**31 - 1 would be 2 GiB
_COMPILED = "/jax/core/compile/backend_compile_duration"
_LONG = 1.0  # seconds


def keep_freed_memory() -> bool:
    """Have the C library keep freed memory, if JAX computes on the CPU; return whether it will.

    XLA's CPU client allocates the temporaries of each step anew and frees them after it: hundreds of
    MiB, which glibc maps and unmaps each time, and whose pages the kernel clears one by one as they
    are touched. That is a sixth of the time of a step (docs/performance.md).

    Only the main thread has a heap of any size, so programs run in the thread that calls them; they
    still compute in all threads. The other threads keep heaps of their own, from which matrix
    products take their buffers: thousands in a step, which in one heap would wait for each other,
    and search through the leftovers of compilation.

    Call this before JAX computes anything, in the main thread. It changes the whole process, so
    programs call it, and the library never does. Without glibc, or where an accelerator may be
    found, it does nothing.
    """
    if not sys.platform.startswith("linux") or not _cpu_alone():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # the main heap never shrinks, and has blocks of any size; musl's mallopt answers 0
    options = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    if not all(mallopt(option, value) == 1 for option, value in options):
        return False
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.monitoring.register_event_duration_secs_listener(_return_freed_memory)
    return True


def _return_freed_memory(event: str, duration_secs: float, **_: object) -> None:
    """Give the system back what a long compilation has freed, in the heaps of all threads."""
    if event == _COMPILED and duration_secs > _LONG:
        ctypes.CDLL(None).malloc_trim(0)


def _cpu_alone() -> bool:
    if chosen := os.environ.get("JAX_PLATFORMS"):
        return chosen == "cpu"
    return not entry_points(group="jax_plugins") and find_spec("libtpu") is None
