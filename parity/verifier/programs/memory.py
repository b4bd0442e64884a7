"""Whether a program can be recorded on this machine: an estimate of its memory, before it runs."""

from __future__ import annotations

from typing import Any

from parity.measure.available import available
from parity.verifier.programs.jaxprs.equations import jaxprs_in, last_reads
from parity.verifier.programs.names import JAX_NAMES, LAYOUT
from parity.verifier.programs.program import KEEP_BYTES, Program
from vit_config import InputError

GIB = 2**30
WIDE = 8
"""Bytes of a number as it is recorded."""
BACKWARD = {"torch": 3.7, "jax": 1.6}
"""Memory of a backward pass, in that of all that was computed forward: measured on ViT-Ti and ViT-S, of
torch, whose values all stay until it ends, and of JAX, whose values go with their last reader."""


class TooLargeError(InputError):
    """A program whose values do not fit into the memory of this machine."""


def check(needed: float, what: str, way_out: str = "") -> None:
    """Check that there is memory for what is about to be recorded.

    Args:
        needed: bytes.
        what: what takes them, as the beginning of a sentence.
        way_out: what to do besides making the inputs smaller.

    Raises:
        TooLargeError: there is not.
    """
    free = available()
    if free is not None and needed > free:
        raise TooLargeError(
            f"{what} takes about {needed / GIB:.2g} GiB of memory, and {free / GIB:.2g} GiB are"
            f" available; give a smaller batch or smaller images{way_out}, or take a larger machine"
        )


def of_leaves(numbers: int) -> float:
    """Return the bytes that a program takes for its parameters and inputs, each of them twice, and for
    the values that it keeps."""
    return 2.0 * WIDE * numbers


def of_backward(program: Program, framework: str) -> float:
    """Return the bytes that recording the gradients of a program takes."""
    leaves = sum(op.size for op in program.operations if op.run is None)
    made = sum(op.size for op in program.operations if op.run is not None and not op.is_layout)
    return of_leaves(2 * leaves) + BACKWARD[framework] * WIDE * made


def of_jaxpr(closed: Any) -> float:
    """Return the bytes that running a jaxpr takes, operation by operation: leaves, and the most that is
    alive at a time."""
    jaxpr = closed.jaxpr
    leaves = sum(_numbers(each) for each in (*jaxpr.invars, *jaxpr.constvars))
    peak, total = _alive(jaxpr)
    return of_leaves(leaves) + WIDE * peak + min(KEEP_BYTES, WIDE * total)


def _alive(jaxpr: Any) -> tuple[int, int]:
    """Return the most numbers that are alive at a time, besides operands, and how many are made."""
    last, sizes = last_reads(jaxpr), dict[Any, int]()
    alive = most = total = 0
    for number, eqn in enumerate(jaxpr.eqns):
        inside, within = 0, 0
        for inner in jaxprs_in(eqn.params):
            peak, made = _alive(getattr(inner, "jaxpr", inner))
            inside, within = max(inside, peak), max(within, made)
        for each in eqn.outvars:
            views = JAX_NAMES.get(eqn.primitive.name, eqn.primitive.name) in LAYOUT
            sizes[each] = 0 if views else _numbers(each)
            alive += sizes[each]
        most = max(most, alive + inside)
        total += sum(sizes[each] for each in eqn.outvars) + within
        for each in last.get(number, ()):
            alive -= sizes.pop(each, 0)
    return most, total


def _numbers(variable: Any) -> int:
    return int(getattr(variable.aval, "size", 1))
