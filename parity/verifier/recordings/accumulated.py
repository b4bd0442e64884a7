"""Recordings seen otherwise, so that two can be compared step by step: the micro-batches of each update
joined, or a resumed run behind the steps of the whole one that came before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from parity.measure.site import STAGES
from parity.measure.traces import Event, Site, Trace
from parity.verifier.recordings.steps.names import PlaceVerdict, named

LAST = ("gradients", "clipped", "learning rate", "moments", "updated")
"""Stages of which the last micro-batch has the whole: PyTorch adds gradients until they are cleared."""
OF_PASSES = ("batch", "forward")
"""Stages of which each micro-batch may have its own, within one recorded step."""


class Joined(Trace):
    """A recording of which some events are others, one behind the other along the first axis."""

    def __init__(self, trace: Trace, joined: Sequence[tuple[Event, tuple[Event, ...]]]) -> None:
        self.__dict__.update(trace.__dict__)
        self._whole = trace
        self._parts = {event.site: parts for event, parts in joined}
        self.events = tuple(event for event, _ in joined)
        self._sites = {event.site: event for event in self.events}

    def read(self, event: Event | Site) -> np.ndarray:
        """Return the tensor that an event saw, of all micro-batches; of gradients, which are apart where
        an optimiser takes their mean, that mean. See `Trace.read`."""
        site = event if isinstance(event, Site) else event.site
        parts = [self._whole.read(each) for each in self._parts[site]]
        if len(parts) == 1:
            return parts[0]
        return np.mean(parts, axis=0) if site.stage == "gradients" else np.concatenate(parts)

    def in_float32(self, event: Event) -> np.ndarray | None:
        """Return the mean of gradients as `optax.MultiSteps` takes it: each mean before the last one is
        kept in float32; None if nothing is joined, or all is float32."""
        those = self._parts[event.site]
        if len(those) == 1:
            return self._whole.in_float32(those[0]) if isinstance(self._whole, Joined) else None
        parts = [self._whole.read(each) for each in those]
        if parts[0].dtype != np.float64:
            return None
        mean = np.zeros_like(parts[0])
        for count, part in enumerate(parts):
            mean = mean.astype(np.float32).astype(np.float64)
            mean = mean + (part - mean) / (count + 1)
        return mean


def by_updates(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Return two recordings by the steps of their optimisers, with equal batches if the micro-batches of
    one or both add up to them."""
    a, b = (_of_updates(each, {event.step for event in each.of("updated")}) for each in (a, b))
    a, b = _with_skipped(a, b), _with_skipped(b, a)
    if len(a.steps) != len(b.steps):
        a, b = (_of_means(one, other) for one, other in ((a, b), (b, a)))
    if not a.steps or not b.steps:
        return a, b
    rows = _rows(a, a.steps[0]), _rows(b, b.steps[0])
    losses = [len(list(each.of("loss", each.steps[0]))) for each in (a, b)]
    if losses[0] != losses[1]:
        a, b = (
            _without_losses(each) if isinstance(each, Joined) or 1 < count == len(own) else each
            for each, count, own in zip((a, b), losses, rows, strict=True)
        )
    if rows[0] == rows[1] or sum(rows[0]) != sum(rows[1]):
        return a, b
    return _as_one(a), _as_one(b)


def _with_skipped(trace: Trace, other: Trace) -> Trace:
    """Return a recording in which a step that only the other one updates has an update as well, if the
    parameters stay: a loss scaler left it out. Its moments are those of the step before."""
    steps, added = trace.steps, list[tuple[Event, tuple[Event, ...]]]()
    mine, theirs = ({event.step for event in each.of("updated")} for each in (trace, other))
    for index, step in enumerate(steps[:-1] if len(steps) == len(other.steps) else ()):
        if step in mine or other.steps[index] not in theirs or not mine:
            continue
        now, later = (
            {e.path: e for e in trace.of("parameters", each)} for each in steps[index : index + 2]
        )
        if now.keys() != later.keys() or _differ(trace, now, later):
            continue
        added += [(event.replace(stage="updated"), (event,)) for event in now.values()]
        if index:
            added += [(e.replace(step=step), (e,)) for e in trace.of("moments", steps[index - 1])]
    if not added:
        return trace
    whole = [(event, (event,)) for event in trace.events] + added
    return Joined(trace, sorted(whole, key=lambda each: (each[0].step, STAGES.index(each[0].stage))))


def _differ(trace: Trace, now: Mapping[str, Event], later: Mapping[str, Event]) -> bool:
    return any(not np.array_equal(trace.read(now[name]), trace.read(later[name])) for name in now)


def _of_means(trace: Trace, other: Trace) -> Trace:
    """Join the recorded steps that lead to one update each as `optax.MultiSteps` takes them, by the mean
    of their gradients, if that leaves as many steps as the other recording has."""
    if len(trace.steps) <= len(other.steps):
        return trace
    joined = _of_updates(trace, {step for step in trace.steps if _moves(trace, step)}, means=True)
    return joined if len(joined.steps) == len(other.steps) else trace


def _moves(trace: Trace, step: int) -> bool:
    """Return whether a step changes any parameter."""
    before = {event.path: event for event in trace.of("parameters", step)}
    after = [event for event in trace.of("updated", step) if event.path in before and not event.port]
    return any(not np.array_equal(trace.read(before[e.path]), trace.read(e)) for e in after)


def _of_updates(trace: Trace, updated: Collection[int], *, means: bool = False) -> Trace:
    """Join the recorded steps that lead to one update each, if every n-th ends with one.

    Args:
        updated: the steps that end with an update.
        means: whether gradients are those of each micro-batch, and not added up.
    """
    steps = trace.steps
    size = next((i + 1 for i, step in enumerate(steps) if step in updated), 1)
    if size == 1 or any((step in updated) != (i % size == size - 1) for i, step in enumerate(steps)):
        return trace
    place = {step: divmod(i, size) for i, step in enumerate(steps)}
    calls = Counter((e.step, e.stage, e.path, e.port) for e in trace.events)
    moved: dict[Site, list[Event]] = {}
    passed: list[tuple[Event, tuple[Event, ...]]] = []
    for event in trace.events:
        step, micro = place[event.step]
        if event.stage == "batch" or (means and event.stage == "gradients"):
            moved.setdefault(Site(step, *event.site[1:]), []).append(event)
        elif event.stage == "forward":
            call = micro * calls[event.step, event.stage, event.path, event.port] + event.call
            passed.append((event.replace(step=step, call=call), (event,)))
        elif event.stage == "loss":
            passed.append((event.replace(step=step, call=micro), (event,)))
        elif (event.stage, micro) == ("parameters", 0) or (event.stage in LAST and micro == size - 1):
            passed.append((event.replace(step=step), (event,)))
    gathered = [_joined(parts, site) for site, parts in moved.items()]
    return Joined(trace, [*gathered, *passed])


def _without_losses(trace: Trace) -> Trace:
    """Leave out the losses of micro-batches, of which nothing tells how they add up."""
    return Joined(trace, [(each, (each,)) for each in trace.events if each.stage != "loss"])


def _rows(trace: Trace, step: int) -> list[int]:
    """Return the size of the batch in each of a step's passes, by the model's first output."""
    events = (e for e in trace.of("forward", step) if not e.path and e.shape)
    outputs = [event for event in events if event.port.startswith("out")]
    return [event.shape[0] for event in outputs if event.port == outputs[0].port]


def _as_one(trace: Trace) -> Trace:
    """Join the passes of each step, as if its batch had been one."""
    passes = {step: _rows(trace, step) for step in trace.steps}
    if all(len(rows) == 1 for rows in passes.values()):
        return trace
    passed: list[tuple[Event, tuple[Event, ...]]] = []
    groups: dict[Site, list[Event]] = {}
    calls = Counter((e.step, e.stage, e.path, e.port) for e in trace.events if e.stage in OF_PASSES)
    for event in trace.events:
        each = calls[event.step, event.stage, event.path, event.port] // max(len(passes[event.step]), 1)
        if not each:
            passed.append((event, (event,)))
        else:
            groups.setdefault(event.site._replace(call=event.call % each), []).append(event)
    for site, parts in groups.items():
        parts.sort(key=lambda each: each.call)
        rows = passes[site.step]
        if len(parts) == len(rows) and all(map(_has_rows, parts, rows)):
            passed.append(_joined(parts, site))
        else:  # of no batch, and so the same in each pass
            passed.append((parts[0].replace(call=site.call), (parts[0],)))
    passed.sort(key=lambda each: (each[0].step, STAGES.index(each[0].stage)))
    return Joined(trace, passed)


def _has_rows(event: Event, count: int) -> bool:
    return event.spacing is None and bool(event.shape) and event.shape[0] % count == 0


def _joined(parts: list[Event], site: Site) -> tuple[Event, tuple[Event, ...]]:
    shape = parts[0].shape
    if len(parts) > 1 and shape and site.stage != "gradients":
        shape = (sum(each.shape[0] for each in parts), *shape[1:])
    return parts[0].replace(step=site.step, call=site.call, shape=shape), tuple(parts)


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
