"""Diagnosis of two recordings of training: the places that differ, each with its cause."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from io import StringIO

from parity.measure.site import Stage
from parity.measure.tolerance import epsilon
from parity.measure.verdict import Verdict
from parity.verifier.recordings.again import Run
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import StageComparison, divergence_of
from parity.verifier.recordings.search import PlaceKind, RecordingSearch
from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.names import CONVENTIONS, StepCause
from parity.verifier.recordings.steps.segments import step_segments
from vit_config.screen import screen


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Result of `diagnose`: a difference, and the causes of its places."""

    difference: Difference
    places: tuple[PlaceKind, ...]
    """Kinds of places in order; empty if nothing differs."""
    follows: frozenset[tuple[int, Stage]] = frozenset()
    """Steps and stages that differ only by what the causes of places before them do."""
    checked: bool = True
    """Whether all that was compared is equal but for the causes of the places."""
    accepted: tuple[str, ...] = ()
    """Names of causes that the user accepts."""

    def __repr__(self) -> str:
        """Return one line: the difference, and the names of the causes."""
        causes = ", ".join(self._names) or ("none" if self.difference.equal else "none of the known")
        return f"<Diagnosis of {self.difference!r}; causes: {causes}>"

    def to_text(self) -> str:
        """Return the report as text."""
        from parity.verifier.recordings.report import print_diagnosis

        text = StringIO()
        print_diagnosis(self, screen(110, file=text))
        return text.getvalue()

    @property
    def but_for(self) -> tuple[str, ...]:
        """Causes but for which the two are equal: all causes, if each is a convention or accepted and
        nothing else differs; else none."""
        return self._names if self.checked and self._names_in(CONVENTIONS | {*self.accepted}) else ()

    @property
    def verdict(self) -> Verdict:
        """Verdict on the two recordings, without what is accepted."""
        difference = self.difference
        return difference.verdict_but_for_differences if self.is_accepted else difference.verdict

    @property
    def is_accepted(self) -> bool:
        """Whether something differs, and all its causes are accepted."""
        return bool(self.but_for) and self._names_in({*self.accepted})

    @property
    def equal(self) -> bool:
        """Whether the verdict is EQUAL: nothing differs or was left out, at a sufficient precision."""
        return self.verdict == "EQUAL"

    @property
    def causes(self) -> tuple[StepCause, ...]:
        """Best cause of every place that has one, in order; then the other causes of the places."""
        by_place = [place.verdict.causes for place in self.places]
        best = [causes[0] for causes in by_place if causes]
        return (*best, *(cause for causes in by_place for cause in causes[1:]))

    @property
    def unknown(self) -> str | None:
        """Sentence on the first place if no known cause explains it; else None."""
        return self.places[0].verdict.unknown if self.places else None

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cause.name for cause in self.causes))

    def _names_in(self, names: Collection[str]) -> bool:
        return set(self._names) <= set(names)


def diagnose(
    difference: Difference, accept: Collection[str] = (), *, run: Run | None = None
) -> Diagnosis:
    """Find the causes of the difference of two recordings of training.

    Args:
        accept: names of causes that may differ: the two are EQUAL if they are the only ones.
        run: compares the programs that the recordings name, to find a line; None does not run them.
    """
    difference = with_small_updates(difference)
    search = RecordingSearch(difference, run)
    return Diagnosis(
        difference, tuple(search.places), frozenset(search.follows), search.checked, tuple(accept)
    )


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
