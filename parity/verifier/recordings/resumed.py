"""A recording of a resumed run beside one of a run that was not stopped: it is put behind the steps that
came before, so that whatever was not restored differs in its first step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.traces import Event, Site, Trace
from parity.verifier.recordings.steps.names import named
from parity.verifier.recordings.verdict import PlaceVerdict


class Resumed(Trace):
    """The steps of a whole run up to one, and behind them those of a resumed run."""

    def __init__(self, whole: Trace, resumed: Trace, first: int) -> None:
        self.__dict__.update(resumed.__dict__)
        self.began = whole.steps[first]
        """The first step of the resumed run, by the number that the whole run gives it."""
        shift = self.began - resumed.steps[0]
        self._from: dict[Site, tuple[Trace, Event]] = {}
        events = []
        for trace, moved in ((whole, 0), (resumed, shift)):
            for event in trace.events:
                if moved == 0 and trace is whole and event.step >= self.began:
                    continue
                at = event.replace(step=event.step + moved)
                self._from[at.site] = trace, event
                events.append(at)
        self.events = tuple(events)
        self._sites = {event.site: event for event in events}

    def read(self, event: Event | Site) -> np.ndarray:
        """Return the tensor that an event saw, or its sample. See `Trace.read`."""
        trace, own = self._from[event if isinstance(event, Site) else event.site]
        return trace.read(own)


def behind_the_whole(whole: Trace, other: Trace) -> Trace:
    """Return the other recording, behind the steps that came before it if it resumes the whole one: it
    begins with the parameters that the whole run had at a later step."""
    if len(whole.steps) < 2 or not other.steps:
        return other
    start = {event.path: event for event in other.of("parameters", other.steps[0])}
    for index, step in enumerate(whole.steps):
        here = {event.path: event for event in whole.of("parameters", step)}
        if start and here.keys() == start.keys() and _same(whole, here, other, start):
            return Resumed(whole, other, index) if index else other
    return other


def _same(a: Trace, mine: dict[str, Event], b: Trace, theirs: dict[str, Event]) -> bool:
    return all(
        each.shape == theirs[name].shape and np.array_equal(a.read(each), b.read(theirs[name]))
        for name, each in mine.items()
    )


def other_data(a: Trace, b: Trace, step_a: int, step_b: int) -> PlaceVerdict | None:
    """Return the cause that B's step has the data of another step of A; None if it has not."""
    given = list(_batch(b, step_b))
    for step in a.steps:
        mine = list(_batch(a, step))
        same = len(mine) == len(given) and all(map(np.array_equal, mine, given))
        if same and given and step != step_a:
            words = f"data of step {step_a}", f"data of step {step}"
            return PlaceVerdict(causes=(named("batch", "data", words),))
    return None


def _batch(trace: Trace, step: int) -> Iterator[np.ndarray]:
    return (trace.read(event) for event in trace.of("batch", step))


def random_state(step: int) -> PlaceVerdict:
    """Return the cause that dropout draws other masks in a run that was resumed in a step."""
    words = "random state: goes on", f"random state: another in step {step}"
    return PlaceVerdict(causes=(named("forward", "random state", words),))
