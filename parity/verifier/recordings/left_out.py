"""Tensors without a partner, which are not compared and named in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.measure.error import wide
from parity.measure.shown import first_three
from parity.measure.site import STAGES
from parity.measure.traces import Event, Site, Stage, Trace
from parity.verifier.recordings.judge import StageComparison, missing_gradients
from parity.verifier.recordings.pairs import Counterparts, Traces, pairs_of, stages_of

NAMED: tuple[Stage, ...] = ("parameters", "gradients", "clipped", "moments", "updated")
"""Stages whose tensors belong to parameters."""


_LONGEST = 200
"""Longest text of an exception that is shown, in characters."""


def left_out(traces: Traces, counterparts: Counterparts, side: str) -> tuple[str, ...]:
    """Return what was not compared, as "stage: names of A's; names of B's"; of a later step only
    what was compared in those before.

    Args:
        side: "A": the stages in which something of A was not compared; "B": those in which only
            something of B was not.
    """
    lines: list[str] = []
    seen: set[tuple[str, str]] = set()
    for index, (step_a, step_b) in enumerate(zip(traces.a.steps, traces.b.steps, strict=False)):
        for stage, those in _of_step(traces, counterparts, side, step_a, step_b):
            if (stage, those) not in seen:
                lines.append(f"{stage} of step {step_a}: {those}" if index else f"{stage}: {those}")
                seen.add((stage, those))
    return tuple(lines)


def lacking_steps(a: Trace, b: Trace) -> tuple[str, ...]:
    """Return the steps that one of two recordings lacks, and the exceptions that ended either."""
    common = min(len(a.steps), len(b.steps))
    parts = []
    for name, other, trace in (("A", "B", a), ("B", "A", b)):
        rest = [str(step) for step in trace.steps[common:]]
        parts += [f"{name}'s {first_three(rest, 'more')}, which {other} lacks"] if rest else []
    for name, trace in (("A", a), ("B", b)):
        if trace.index.ended_by is not None:
            reason = " ".join(trace.index.ended_by.split())
            reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."
            parts.append(f"an exception ended {name}'s recording ({reason})")
    return (f"steps: {'; '.join(parts)}",) if parts else ()


def lacking_stages(a: Trace, b: Trace, side: str) -> tuple[str, ...]:
    """Return the stages of common steps that one side alone has, of those that both have elsewhere; see
    `left_out`."""
    of_a, of_b = _stages(a), _stages(b)
    both = set().union(*of_a.values()) & set().union(*of_b.values())
    lines = []
    for step_a, step_b in zip(a.steps, b.steps, strict=False):
        mine, theirs = of_a[step_a] & both, of_b[step_b] & both
        alone = mine - theirs if side == "A" else theirs - mine
        # the parameters of a later step are those that the step before left
        names = [stage for stage in STAGES if stage in alone and stage != "parameters"]
        step = step_a if side == "A" else step_b
        lines += [f"{stage} of step {step}: all of {side}'s" for stage in names]
    return tuple(lines)


def all_missing(a: Trace, comparisons: Sequence[StageComparison]) -> tuple[str, ...]:
    """Return the tensors that are nothing but NaN on both sides, so that nothing can be said of them;
    without gradients of which nothing was made."""
    lines = []
    for each in comparisons:
        if each.stage in ("gradients", "clipped") and _stays(a, each.step):
            continue
        sites = [one.site for one in each.judged if one.passed and not one.finite]
        names = [
            str(site) if site.path or each.stage == "forward" else each.stage
            for site in sites
            if site in a and a[site].size and np.isnan(wide(a.read(site))).all()
        ]
        if names:
            shown = first_three(names, "more")
            lines.append(f"{each.stage} of step {each.step}: A's and B's {shown}, which are all NaN")
    return tuple(lines)


def _stays(trace: Trace, step: int) -> bool:
    """Return whether a step leaves all parameters as they are, as a loss scaler does at an overflow."""
    after = {event.path: event for event in trace.of("updated", step) if not event.port}
    return any(trace.of("updated")) and all(
        np.array_equal(trace.read(event), trace.read(after.get(event.path, event)))
        for event in trace.of("parameters", step)
    )


def _stages(trace: Trace) -> dict[int, set[Stage]]:
    stages: dict[int, set[Stage]] = {}
    for event in trace.events:
        stages.setdefault(event.step, set()).add(event.stage)
    return stages


def _of_step(
    traces: Traces, counterparts: Counterparts, side: str, step_a: int, step_b: int
) -> Iterator[tuple[str, str]]:
    """Yield the stages of one step of which something was not compared, with the names."""
    missing = missing_gradients(traces, counterparts, step_a, step_b)
    judged = {each.name_a for each in missing}, {each for one in missing for each in one.names_b}
    for stage in NAMED:
        if stage not in stages_of(traces.a, step_a) or stage not in stages_of(traces.b, step_b):
            continue
        pairs = list(pairs_of(traces, counterparts, stage, step_a, step_b))
        of_b = {each.site for pair in pairs for each in pair.all_b}
        names_a = _rest(traces.a, stage, step_a, {pair.a.site for pair in pairs}, judged[0])
        names_b = _rest(traces.b, stage, step_b, of_b, judged[1])
        parts = [f"{of}'s {', '.join(names)}" for of, names in (("A", names_a), ("B", names_b)) if names]
        if parts and bool(names_a) == (side == "A"):
            yield stage, "; ".join(parts)


def _rest(trace: Trace, stage: Stage, step: int, paired: set[Site], judged: set[str]) -> list[str]:
    """Return the names of a stage without a partner, except the number of updates, which not every
    optimiser counts, and parameters whose missing gradient was judged."""
    left = [e for e in trace.of(stage, step) if _is_left(e, paired, judged)]
    return list(dict.fromkeys(str(e.site) if e.port.startswith("max_") else e.path for e in left))


def _is_left(event: Event, paired: set[Site], judged: set[str]) -> bool:
    counts = event.port == "step" and not event.path
    return event.site not in paired and not counts and event.path not in judged
