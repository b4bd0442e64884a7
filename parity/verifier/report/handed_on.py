"""The lines between which a value goes on without what is left out."""

from __future__ import annotations

from parity.verifier.causes import collectives
from parity.verifier.programs.operation import Source
from parity.verifier.search.region import Gap

_COLLECTIVES = frozenset(each.name for each in collectives.CAUSES)
"""Causes of which the line shown is that of the value's last use, for all gradients alike."""


def handed_on(gap: Gap, cause: str) -> list[Source]:
    """Return the lines of one function of B's that hand on the value of a place at which something is
    left out: the one that makes it, or calls what makes it, and the one that reads it, or calls what
    reads it; none where they are one line, or share no function, and of other causes.

    What is left out belongs between the two: a skip is added where attention is called, not where it
    returns.
    """
    if not cause.endswith("left out") or cause in _COLLECTIVES:
        return []
    program = gap.b.program
    own = _frames(program.operations[gap.b.end].source)
    for index in program.consumers()[gap.b.end]:
        reader = _frames(program.operations[index].source)
        for depth, frame in enumerate(own):
            other = next((each for each in reader if _is_one_call(each, frame)), None)
            if other is not None:
                if other.line != frame.line:
                    return [own[depth], other]
                break
    return []


def _is_one_call(one: Source, other: Source) -> bool:
    """Return whether two lines were run by one call of a function, as far as its callers tell."""
    places = [(each.file, each.function, each.caller) for each in (one, other)]
    return bool(one.function) and places[0] == places[1]


def _frames(source: Source | None) -> list[Source]:
    """Return a line and its callers."""
    frames = []
    while source is not None:
        frames.append(source)
        source = source.caller
    return frames
