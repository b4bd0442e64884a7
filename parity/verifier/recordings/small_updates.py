"""Updates that differ by less than rounding is granted, and by another rule all the same."""

from __future__ import annotations

from dataclasses import replace

from parity.measure.tolerance import epsilon
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import StageComparison, divergence_of
from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.names import CONVENTIONS
from parity.verifier.recordings.steps.segments import step_segments

TELLING = 16.0
"""Units in the last place by which an updated parameter must differ before its rules are looked at."""


def with_small_updates(difference: Difference) -> Difference:
    """Return an equal difference in which the first update differs that two rules tell apart.

    In float32, the decay of one step moves a parameter by less than the 256 units in the last place that
    rounding is granted; but an update is no long computation, and a rule reproduces it
    to a unit. If two different rules reproduce the two sides, the difference is theirs.
    """
    if not difference.equal:
        return difference
    for place, comparison in enumerate(difference.comparisons):
        telling = _telling(difference, comparison)
        if telling is None:
            continue
        verdict = explain_step(*step_segments(difference, telling.divergences[0]))
        if {cause.name for cause in verdict.causes} <= CONVENTIONS:
            return difference
        before, after = difference.comparisons[:place], difference.comparisons[place + 1 :]
        return replace(difference, comparisons=(*before, telling, *after))
    return difference


def _telling(difference: Difference, comparison: StageComparison) -> StageComparison | None:
    """Return the comparison of an update with the limit `TELLING`; None if no parameter is beyond it."""
    if comparison.stage != "updated":
        return None
    judged, traces = list(comparison.judged), difference.traces
    for place, each in enumerate(judged):
        if not each.site.port:  # else a moving average
            types = traces.a[each.site].dtype, traces.b[each.partner].dtype
            least = TELLING * max(map(epsilon, types))
            judged[place] = replace(each, limit=least, origin=f"{TELLING:g} eps")
    beyond = [place for place, each in enumerate(judged) if not each.passed]
    divergences = tuple(divergence_of(judged[place]) for place in beyond)
    return replace(comparison, judged=tuple(judged), divergences=divergences) if beyond else None
