"""Tensors without a partner, which are not compared and named in the report."""

from __future__ import annotations

from parity.measure.traces import Event, Site, Stage, Trace
from parity.verifier.recordings.align import Alignment
from parity.verifier.recordings.no_gradient import missing_gradients
from parity.verifier.recordings.pairs import pairs_of, stages_of
from parity.verifier.recordings.rounding import Traces

NAMED: tuple[Stage, ...] = ("parameters", "gradients", "clipped", "moments", "updated")
"""Stages whose tensors belong to parameters."""


def left_out(traces: Traces, alignment: Alignment, side: str) -> tuple[str, ...]:
    """Return what was not compared in the first step, as "stage: names of A's; names of B's".

    Args:
        side: "A": the stages in which something of A was not compared; "B": those in which only
            something of B was not.
    """
    step_a, step_b = traces.a.steps[0], traces.b.steps[0]
    missing = missing_gradients(traces, alignment, step_a, step_b)
    judged = {each.name_a for each in missing}, {each for one in missing for each in one.names_b}
    lines = []
    for stage in NAMED:
        if stage not in stages_of(traces.a, step_a) or stage not in stages_of(traces.b, step_b):
            continue
        pairs = list(pairs_of(traces, alignment, stage, step_a, step_b))
        of_b = {each.site for pair in pairs for each in pair.all_b}
        names_a = _rest(traces.a, stage, step_a, {pair.a.site for pair in pairs}, judged[0])
        names_b = _rest(traces.b, stage, step_b, of_b, judged[1])
        parts = [f"{of}'s {', '.join(names)}" for of, names in (("A", names_a), ("B", names_b)) if names]
        if parts and bool(names_a) == (side == "A"):
            lines.append(f"{stage}: {'; '.join(parts)}")
    return tuple(lines)


def _rest(trace: Trace, stage: Stage, step: int, paired: set[Site], judged: set[str]) -> list[str]:
    """Return the names of a stage without a partner, except the number of updates, which not every
    optimiser counts, and parameters whose missing gradient was judged."""
    return list(dict.fromkeys(e.path for e in trace.of(stage, step) if _is_left(e, paired, judged)))


def _is_left(event: Event, paired: set[Site], judged: set[str]) -> bool:
    counts = event.port == "step" and not event.path
    return event.site not in paired and not counts and event.path not in judged
