"""What two recordings of training do differently, and why."""

from __future__ import annotations

from dataclasses import dataclass

from parity.measure.verdict import Verdict as Said
from parity.verifier.diagnose.steps.explain import explain_step
from parity.verifier.diagnose.steps.segments import step_segments
from parity.verifier.diagnose.verdict import Cause, Verdict
from parity.verifier.diff.difference import Difference
from parity.verifier.diff.judge import Divergence

STEP_STAGES = ("loss", "gradients", "clipped", "learning rate", "moments", "updated")
MULTIPLES = {"gradient-scale", "gradient-sign"}
"""Causes that make all gradients multiples of the other program's."""
NO_OPERATIONS = "a recording holds no operations; give both as programs to see the line and the cause"
MOST_PLACES = 8
"""Kinds of places that are listed; what differs in more is better compared again after a repair."""


@dataclass(frozen=True)
class Place:
    """One kind of place that differs, and why."""

    divergences: tuple[Divergence, ...]
    """The same place of one or more blocks."""
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Where two models differ, and why."""

    difference: Difference
    places: tuple[Place, ...]
    """The first place first; empty where the two are equal."""

    def __repr__(self) -> str:
        """One line: the difference, and the causes."""
        causes = ", ".join(dict.fromkeys(cause.name for cause in self.causes)) or (
            "none" if self.equal else "none of the known"
        )
        return f"<Diagnosis of {self.difference!r}; causes: {causes}>"

    @property
    def verdict(self) -> Said:
        """What is said of the two."""
        return self.difference.verdict

    @property
    def equal(self) -> bool:
        """Whether nothing differs, to a precision that says so, and nothing was left out."""
        return self.difference.verdict == "EQUAL"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The best cause of every place that has one, the first place first; then the others of the
        first."""
        best = [place.verdict.causes[0] for place in self.places if place.verdict.causes]
        return (*best, *(self.places[0].verdict.causes[1:] if self.places else ()))

    @property
    def unknown(self) -> str | None:
        """What to say of the first place if none of the known causes explains it."""
        return self.places[0].verdict.unknown if self.places else None


def diagnose(difference: Difference) -> Diagnosis:
    """Explain what two recordings of training do differently."""
    places = []
    for group in difference.places[:MOST_PLACES]:
        if group[0].stage in STEP_STAGES:
            verdict = explain_step(*step_segments(difference, group[0]))
        else:
            unknown = None if places else NO_OPERATIONS
            verdict = _passed_on(difference, group[0]) or Verdict(unknown=unknown)
        places.append(Place(group, verdict))
    return Diagnosis(difference, tuple(places))


def _passed_on(difference: Difference, first: Divergence) -> Verdict | None:
    """What makes the gradients of a recording's parameters differ, if one thing does and they are
    multiples: then those between the layers are, too."""
    if first.stage != "backward":
        return None
    found = difference.first_of(("gradients",))
    if found is None or found.judged.site.step != first.judged.site.step:
        return None
    verdict = explain_step(*step_segments(difference, found))
    return verdict if {cause.name for cause in verdict.causes} & MULTIPLES else None
