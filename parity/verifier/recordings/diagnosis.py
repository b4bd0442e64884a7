"""Diagnosis of two recordings of training: the places that differ, each with its cause."""

from __future__ import annotations

from dataclasses import dataclass

from parity.measure.verdict import Verdict as Said
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.judge import Divergence
from parity.verifier.recordings.steps.explain import explain_step
from parity.verifier.recordings.steps.segments import step_segments
from parity.verifier.recordings.verdict import Cause, Verdict

STEP_STAGES = ("loss", "gradients", "clipped", "learning rate", "moments", "updated")
MULTIPLES = {"gradient-scale", "gradient-sign"}
"""Causes that make all gradients of one program multiples of the other's."""
NO_OPERATIONS = "a recording holds no operations; give both as programs to see the line and the cause"
MOST_PLACES = 8
"""Most kinds of places that are listed; with more, it is better to repair these and compare again."""


@dataclass(frozen=True)
class Place:
    """One kind of place that differs, and its cause."""

    divergences: tuple[Divergence, ...]
    """The same place of one or more blocks."""
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Result of `diagnose`: a difference, and the causes of its places."""

    difference: Difference
    places: tuple[Place, ...]
    """Kinds of places in order; empty if nothing differs."""

    def __repr__(self) -> str:
        """Return one line: the difference, and the names of the causes."""
        causes = ", ".join(dict.fromkeys(cause.name for cause in self.causes)) or (
            "none" if self.equal else "none of the known"
        )
        return f"<Diagnosis of {self.difference!r}; causes: {causes}>"

    @property
    def verdict(self) -> Said:
        """Verdict on the two recordings."""
        return self.difference.verdict

    @property
    def equal(self) -> bool:
        """Whether the verdict is EQUAL: nothing differs or was left out, at a sufficient precision."""
        return self.difference.verdict == "EQUAL"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Best cause of every place that has one, in order; then the other causes of the first place."""
        best = [place.verdict.causes[0] for place in self.places if place.verdict.causes]
        return (*best, *(self.places[0].verdict.causes[1:] if self.places else ()))

    @property
    def unknown(self) -> str | None:
        """Sentence on the first place if no known cause explains it; else None."""
        return self.places[0].verdict.unknown if self.places else None


def diagnose(difference: Difference) -> Diagnosis:
    """Find the causes of the difference of two recordings of training."""
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
    """Return the verdict on the parameters' gradients for a difference in the backward pass, if its
    cause makes all gradients multiples: then those between the layers are multiples, too."""
    if first.stage != "backward":
        return None
    found = difference.first_of(("gradients",))
    if found is None or found.judged.site.step != first.judged.site.step:
        return None
    verdict = explain_step(*step_segments(difference, found))
    return verdict if {cause.name for cause in verdict.causes} & MULTIPLES else None
