"""Tensors without a partner: those whose numbers the other side holds elsewhere are compared as sets of
numbers, the others are named in the report."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.measure.error import norm, relative_error
from parity.measure.traces import Event, Stage, Trace
from parity.verifier.recordings.align import Alignment
from parity.verifier.recordings.judge import pairs_of, stages_of
from parity.verifier.recordings.rounding import Traces

NAMED: tuple[Stage, ...] = ("parameters", "gradients", "clipped", "moments", "updated")
"""Stages whose tensors belong to parameters."""
CLOSE = {"float64": 1e-9, "float32": 1e-3}
"""Largest relative distance of the sorted numbers of two sets of gradients that count as equal."""
NOISE = {"float64": 1e-13, "float32": 1e-5}
"""Largest size, relative to the largest gradient of its layer, of a gradient that is only rounding."""
SHARED = 1 / 8
"""Share of the smaller parameter's numbers that the other must have for the two to belong together; the
sets that are compared must then agree as a whole."""

_Group = tuple[frozenset[str], frozenset[str]]
"""Parameters of A and of B that hold the same numbers, packed or split."""


def left_out(traces: Traces, alignment: Alignment, side: str) -> tuple[str, ...]:
    """Return what was not compared in the first step, as "stage: names of A's; names of B's".

    A parameter that has no partner by its place may have another name on the other side, or be a part
    of a parameter there. If the numbers are the same, its gradient and its moments are compared with the
    other's as sets of numbers.

    Args:
        side: "A": the stages in which something of A was not compared; "B": those in which only
            something of B was not.
    """
    step_a, step_b = traces.a.steps[0], traces.b.steps[0]
    groups: list[_Group] = []
    found = []
    for stage in NAMED:
        if stage not in stages_of(traces.a, step_a) or stage not in stages_of(traces.b, step_b):
            continue
        pairs = list(pairs_of(traces, alignment, stage, step_a, step_b))
        rest_a = _rest(traces.a, stage, step_a, {pair.a.site for pair in pairs})
        rest_b = _rest(traces.b, stage, step_b, {pair.b.site for pair in pairs})
        if stage == "parameters":
            groups = list(_groups(traces, rest_a, rest_b))
        names_a, names_b = _uncovered(traces, groups, rest_a, rest_b)
        said = [f"{of}'s {', '.join(names)}" for of, names in (("A", names_a), ("B", names_b)) if names]
        if said and bool(names_a) == (side == "A"):
            found.append(f"{stage}: {'; '.join(said)}")
    return tuple(found)


def _rest(trace: Trace, stage: Stage, step: int, paired: set[object]) -> list[Event]:
    """Return the events of a stage without a partner, except the number of updates, which not every
    optimiser counts."""
    rest = (each for each in trace.of(stage, step) if each.site not in paired)
    return [each for each in rest if each.path or each.port != "step"]


def _groups(traces: Traces, rest_a: list[Event], rest_b: list[Event]) -> Iterator[_Group]:
    """Yield sets of unpaired parameters that share numbers: stacked over layers here, packed there."""
    values_a = {e.path: np.unique(traces.a.read(e)) for e in rest_a if e.spacing is None}
    values_b = {e.path: np.unique(traces.b.read(e)) for e in rest_b if e.spacing is None}
    linked: dict[str, set[str]] = {a: set() for a in values_a}
    for a, mine in values_a.items():
        for b, theirs in values_b.items():
            small, large = sorted((mine, theirs), key=len)
            if np.isin(small, large).mean() >= SHARED:
                linked[a].add(b)
    while linked:
        a, partners = next(iter(linked.items()))
        group_a, group_b = {a}, set(partners)
        while more := {x for x, ys in linked.items() if ys & group_b} - group_a:
            group_a |= more
            group_b |= {y for x in more for y in linked[x]}
        for each in group_a:
            linked.pop(each)
        if group_b:
            yield frozenset(group_a), frozenset(group_b)


def _uncovered(
    traces: Traces, groups: list[_Group], rest_a: list[Event], rest_b: list[Event]
) -> tuple[list[str], list[str]]:
    names_a, names_b = [each.path for each in rest_a], [each.path for each in rest_b]
    for of_a, of_b in groups:
        mine, theirs = _numbers(traces.a, rest_a, of_a), _numbers(traces.b, rest_b, of_b)
        if mine.size != theirs.size:
            continue
        close = max(CLOSE.get(str(each.dtype), CLOSE["float32"]) for each in (mine, theirs))
        same = relative_error(theirs.astype(np.float64), mine.astype(np.float64)) <= close
        if same or (_is_rounding(traces.a, rest_a, of_a) and _is_rounding(traces.b, rest_b, of_b)):
            names_a = [each for each in names_a if each not in of_a]
            names_b = [each for each in names_b if each not in of_b]
    return names_a, names_b


def _is_rounding(trace: Trace, events: list[Event], names: frozenset[str]) -> bool:
    """Return whether gradients or moments are rounding beside the others of their layers: zero in
    theory, such as the gradient of a bias that the next norm cancels."""
    own = [each for each in events if each.path in names]
    if not own or own[0].stage not in ("gradients", "clipped", "moments"):
        return False
    for each in own:
        layer = each.path.rpartition(".")[0]
        beside = (e for e in trace.of(each.stage, each.step) if e.path.rpartition(".")[0] == layer)
        largest = max(norm(trace.read(e)) for e in beside)
        if norm(trace.read(each)) > NOISE.get(each.dtype, NOISE["float32"]) * largest:
            return False
    return True


def _numbers(trace: Trace, events: list[Event], names: frozenset[str]) -> np.ndarray:
    """Return the numbers of some parameters, sorted."""
    read = [np.ravel(trace.read(each)) for each in events if each.path in names]
    return np.sort(np.concatenate(read)) if read else np.zeros(0)
