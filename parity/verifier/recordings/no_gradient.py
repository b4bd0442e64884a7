"""Parameters of which one side has a gradient and the other none, as behind ``detach()``."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from parity.measure.error import norm
from parity.measure.tolerance import epsilon
from parity.measure.traces import Event, Site, Trace
from parity.verifier.recordings.pairs import Counterparts, Traces, pairs_of
from parity.verifier.recordings.rounding import GRAINS, usual_gradient


class Missing(NamedTuple):
    """A parameter without a gradient on one side."""

    name_a: str
    names_b: tuple[str, ...]
    side: Literal["A", "B"]
    """The side that has none."""
    matters: bool
    """Whether the other side's is more than rounding, and moves the parameter, which else is frozen on
    both."""


def missing_gradients(
    traces: Traces, counterparts: Counterparts, step_a: int, step_b: int
) -> tuple[Missing, ...]:
    """Return the parameters of a step that one side alone has a gradient of.

    A parameter that was updated had a gradient, which the program did not log.
    """
    first = traces.a.steps[0], traces.b.steps[0]
    of_a = {each.path: each for each in traces.a.of("gradients", step_a)}
    of_b = {each.path: each for each in traces.b.of("gradients", step_b)}
    missing = []
    for pair in pairs_of(traces, counterparts, "parameters", *first) if of_a and of_b else ():
        mine, theirs = pair.a.path, tuple(each.path for each in pair.all_b)
        there = [name for name in theirs if name in of_b]
        if (mine in of_a) == (len(there) == len(theirs)) or (mine not in of_a and not there):
            continue
        if mine in of_a:
            lacking = [name for name in theirs if name not in of_b]
            own = np.ravel(traces.a.read(of_a[mine]))
            if pair.parts is not None and pair.parts.index is not None and of_a[mine].spacing is None:
                owner = np.repeat(np.arange(len(theirs)), [each.size for each in pair.parts.events])
                absent = [theirs.index(name) for name in lacking]
                own = own[np.isin(owner[pair.parts.index], absent)]
            seen = _is_seen(traces.a, of_a[mine], own)
        else:
            lacking = []
            seen = any(_is_seen(traces.b, of_b[name], traces.b.read(of_b[name])) for name in there)
        move_a = _moved(traces.a, step_a, mine)
        moves_b = [_moved(traces.b, step_b, name) for name in lacking or there]
        has, lacks = ([move_a], moves_b) if lacking else (moves_b, [move_a])
        if not any(lacks):
            matters = seen and any(each is not False for each in has)
            missing.append(Missing(mine, theirs, "B" if lacking else "A", matters))
    return tuple(missing)


def _is_seen(trace: Trace, event: Event, gradient: np.ndarray) -> bool:
    """Return whether a gradient is more than rounding beside all others."""
    least = GRAINS * epsilon(event.dtype) * usual_gradient(trace, event.step)
    return norm(gradient) > least * gradient.size**0.5


def _moved(trace: Trace, step: int, name: str) -> bool | None:
    """Return whether a step moves a parameter; None if that was not recorded."""
    before, after = Site(step, "parameters", name), Site(step, "updated", name)
    if before not in trace or after not in trace:
        return None
    return not np.array_equal(trace.read(trace[before]), trace.read(trace[after]))
