"""The number of threads that torch uses while programs are searched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from parity.verifier.programs.program import Program

LARGEST_ALONE = 1 << 20
"""Largest value for which one thread is faster: torch's others spin while they wait for an operation."""


@contextmanager
def one_thread(a: Program, b: Program) -> Iterator[None]:
    """Let torch compute in one thread while small programs are searched, which is nine times faster."""
    torch = sys.modules.get("torch")
    small = all(op.size <= LARGEST_ALONE for program in (a, b) for op in program.operations)
    if torch is None or not small:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
