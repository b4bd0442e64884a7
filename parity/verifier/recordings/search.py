"""Search for all differences of two recordings: what is explained is granted, and the search goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from parity.measure.error import relative_error, wide
from parity.measure.site import AVERAGE, Stage
from parity.measure.tolerance import ASSUMED
from parity.verifier.recordings.accumulated import Resumed, other_data, random_state
from parity.verifier.recordings.again import Run, run_again
from parity.verifier.recordings.difference import Difference
from parity.verifier.recordings.dropped import dropout
from parity.verifier.recordings.judge import Divergence, StageComparison
from parity.verifier.recordings.pairs import pairs_of, read_pair
from parity.verifier.recordings.steps.average import explain_average
from parity.verifier.recordings.steps.explain import explain_step, other_optimizers
from parity.verifier.recordings.steps.fitting import CHOSEN, last_number
from parity.verifier.recordings.steps.names import PlaceVerdict, StepCause
from parity.verifier.recordings.steps.segments import StepSegment, step_segments
from parity.verifier.recordings.steps.sides import leaf_of, make_sides
from parity.verifier.recordings.steps.told_by_gradients import another_loss, narrowed
from parity.verifier.recordings.steps.updated import used_rate

STEP_STAGES = ("loss", "gradients", "clipped", "learning rate", "moments", "updated")
UNRULED = ("forward", "loss", "gradients")
"""Stages of the model: no rule recomputes them, and what the step starts from decides how far they part.
(The loss has rules, if its logits and labels were recorded.)"""
OTHER_START = "the two begin with other parameters; give both the same"
OTHER_DATA = "the two are given other data; give both the same"
MOVES = "the one that moves nothing here does in another step"
NO_RULE = "there is no rule for this tensor, or only a sample of it was kept"
VIEWS = {
    "weight-decay": {"coupled-decay"},
    "gradient-scale": {"loss-reduction", "gradient-scale"},
    "moments-gradient": {"loss-reduction", "gradient-scale", "clip-norm", "clip-value"},
    "update-rate": {"schedule-speed", "skipped-update"},
    "decay-times-rate": {"weight-decay"},
    "schedule-shift": {"skipped-update"},
    "bias-correction": {"skipped-update", "first-moment-sum", "second-moment-sum"},
}
"""Causes that may be another view of some that were named: one side is an update behind after one that
was left out, or its gradient is too small to be clipped."""
MOST_PLACES = 8
"""Most kinds of places that are listed; with more, it is better to repair these and compare again."""


@dataclass(frozen=True)
class PlaceKind:
    """One kind of place that differs, and its cause."""

    divergences: tuple[Divergence, ...]
    """The same place of one or more blocks."""
    verdict: PlaceVerdict


class RecordingSearch:
    """Places that differ in the order of computation, as far as every one before has a cause.

    Each stage of the optimiser is recomputed from what the same side recorded before it, so a cause of
    one stage hides none of a later one: if both sides follow one rule there, that stage only passes on
    what went in. Stages of the model have no rule. There, a later step may differ by `ASSUMED` times as
    much as its parameters do, which is what a unit in the last place of them is granted.
    """

    def __init__(self, difference: Difference, run: Run | None = None) -> None:
        self.difference = difference
        self._run = run
        self.places: list[PlaceKind] = []
        self.follows: set[tuple[int, Stage]] = set()
        """Steps, by A's number, and stages that differ only by what was explained before them."""
        self.checked = True
        """Whether all that was compared is known to be equal but for the causes of the places."""
        self._other_loss: set[int] = set()
        for comparison in difference.comparisons:
            if not comparison.passed and not self._go_on(comparison):
                self.checked = False
                break

    def _go_on(self, comparison: StageComparison) -> bool:
        """Look at a stage that differs; return whether what comes after it can still be judged."""
        assert comparison.divergence is not None
        first = not self.places
        if first and comparison.stage == "parameters":
            self.places += [
                PlaceKind(group, PlaceVerdict()) for group in self.difference.places[:MOST_PLACES]
            ]
            self.places[0] = PlaceKind(self.places[0].divergences, PlaceVerdict(unknown=OTHER_START))
            return False
        if not first and self._is_carried(comparison):
            self.follows.add((comparison.step, comparison.stage))
            return True
        verdict = self._explain(comparison.divergence)
        if verdict.causes and comparison.stage in ("forward", "loss"):
            self._other_loss.add(comparison.step)
        new = tuple(c for c in verdict.causes if c.name not in self._named and not self._is_view(c))
        if verdict.unknown and comparison.stage in UNRULED and self._gradients_part:
            self.checked = False  # the same mistake, in another step
        elif first or new or (verdict.unknown and not verdict.same):
            self.places.append(PlaceKind((comparison.divergence,), replace(verdict, causes=new)))
            return bool(new) and comparison.stage != "batch" and self._is_covered(comparison)
        self.follows.add((comparison.step, comparison.stage))
        return self._is_covered(comparison)

    def _is_covered(self, comparison: StageComparison) -> bool:
        """Return whether all tensors that differ are among those that the rules recompute; if not, name
        the first: a sample, or a moving average that follows no rule."""
        if comparison.stage not in ("clipped", "moments", "updated") or comparison.divergence is None:
            return True
        a, b = step_segments(self.difference, comparison.divergence)
        for each in comparison.divergences:
            mine, theirs = each.judged.site, each.judged.partner
            port = f" {mine.port}" if comparison.stage == "moments" else ""
            known = (
                {f"{path}{port}" for path in (mine.path, theirs.path)}
                & a.result.keys()
                & b.result.keys()
            )
            average = mine.port == AVERAGE
            if average and (verdict := explain_average(self.difference.traces, mine, theirs)):
                if verdict.causes and verdict.causes[0].name not in self._named:
                    self.places.append(PlaceKind((each,), verdict))
            elif (not known or (mine.port and not port)) and mine.path not in self._frozen:
                self.places.append(
                    PlaceKind((each,), PlaceVerdict(unknown=f"{comparison.stage}: {NO_RULE}"))
                )
                return False
        return True

    @property
    def _named(self) -> set[str]:
        return {cause.name for place in self.places for cause in place.verdict.causes}

    def _is_view(self, cause: StepCause) -> bool:
        """Return whether a cause is only another view of one that was named, in a later stage."""
        named, said = self._named & VIEWS.get(cause.name, set()), (cause.a, cause.b)
        if cause.name == "weight-decay" and named:  # it is in the gradient instead
            causes = (c for p in self.places for c in p.verdict.causes if c.name in named)
            moved = next([last_number(each.a), last_number(each.b)] for each in causes)
            return np.allclose([*map(last_number, reversed(said))], moved, rtol=10.0 ** (1 - CHOSEN))
        if cause.name == "moments-gradient" and not any("not clipped" in each for each in said):
            return False  # else the gradient of one side is not large enough to be clipped
        if cause.name == "bias-correction" and named and "skipped-update" not in named:
            return len({each.partition(", of betas")[0] for each in said}) == 1  # which no sum tells
        return bool(named)

    def _explain(self, divergence: Divergence) -> PlaceVerdict:
        step = divergence.judged.site.step
        carried = ASSUMED * self._apart(step) if self.places else 0.0
        traces, partner = self.difference.traces, divergence.judged.partner.step
        if divergence.stage == "batch" and (data := other_data(traces.a, traces.b, step, partner)):
            return data
        if divergence.stage in ("forward", "loss"):
            dropped = dropout(traces, step, partner)
            if dropped is not None and dropped.unknown and isinstance(traces.b, Resumed):
                return random_state(step)
            if dropped is not None:
                return dropped
        if divergence.stage == "forward":
            return self._again(divergence, "")
        if divergence.stage not in STEP_STAGES:
            return PlaceVerdict(unknown=OTHER_DATA)
        site = divergence.judged.site
        if site.port == AVERAGE:
            averages = explain_average(self.difference.traces, site, divergence.judged.partner)
            return averages or PlaceVerdict(unknown=f"updated: {NO_RULE}")
        carried = carried if divergence.stage == "gradients" else 0.0
        a, b = step_segments(self.difference, divergence)
        if divergence.stage in ("clipped", "moments", "updated"):
            a, b = _without(a, self._frozen), _without(b, self._frozen)
        verdict = explain_step(a, b, carried)
        if divergence.stage == "updated":
            unmoved = next((each for each in verdict.causes if each.name == "not-updated"), None)
            if unmoved is not None and self._moves_them(divergence, unmoved):
                return PlaceVerdict(unknown=f"updated: {unmoved.a} in a, {unmoved.b} in b: {MOVES}")
            return self._schedule(divergence, verdict) or verdict
        told = None
        if verdict.unknown and divergence.stage == "gradients":
            told = narrowed(a, b)
        if verdict.unknown and divergence.stage == "loss":
            told = self._told_by_gradients(divergence, carried)
        if verdict.unknown and told is None and not verdict.same and divergence.stage in UNRULED:
            return self._again(divergence, verdict.unknown)
        return told or verdict

    def _moves_them(self, divergence: Divergence, cause: StepCause) -> bool:
        """Return whether a side moves in some step what it was said not to update."""
        side = int(cause.a == "moved: all")
        segments = (pair[side] for _, pair in self._of_all_steps(divergence))
        return any(
            not np.array_equal(each.result[name], each.parameters[name])
            for each in segments
            for name in cause.where
            if name in each.result and name in each.parameters
        )

    def _of_all_steps(
        self, divergence: Divergence
    ) -> Iterator[tuple[tuple[int, int], tuple[StepSegment, StepSegment]]]:
        """Yield each pair of steps, and the stage of a divergence in it."""
        sites = divergence.judged.site, divergence.judged.partner
        for pair in zip(self.difference.traces.a.steps, self.difference.traces.b.steps, strict=False):
            moved = [each._replace(step=step) for each, step in zip(sites, pair, strict=True)]
            judged = replace(divergence.judged, site=moved[0], other=moved[1])
            yield pair, step_segments(self.difference, replace(divergence, judged=judged))

    def _again(self, divergence: Divergence, unknown: str) -> PlaceVerdict:
        """Return what the programs tell, run again on what the step was given; or, where they cannot be
        run, why, and the first gradient that differs."""
        if self._gradients_part:  # a later step of what was looked at
            return PlaceVerdict(unknown=unknown)
        traces, site = self.difference.traces, divergence.judged.site
        steps = site.step, divergence.judged.partner.step
        verdict = run_again(*traces, *steps, divergence.stage, self._run)
        if verdict.compared is not None:
            return verdict
        gradients = self._at(site.step, "gradients")
        first = gradients.divergence if gradients and divergence.stage != "gradients" else None
        told = [unknown, f"the first gradient that differs is that of {first.where}" if first else ""]
        return PlaceVerdict(unknown="; ".join(filter(None, (*told, verdict.unknown))))

    def _schedule(self, divergence: Divergence, verdict: PlaceVerdict) -> PlaceVerdict | None:
        """Return the cause of another rate in an update, from the rates that all updates tell, if
        nothing else is known of it, or it is a series that is stepped more often."""
        of_rate = [cause.name for cause in verdict.causes] == ["update-rate"]
        if verdict.same or (verdict.causes and not of_rate):
            return None
        steps, series = [], (list[float](), list[float]())
        for pair, segments in self._of_all_steps(divergence):
            steps.append(pair)
            sides = make_sides(*segments)
            if other_optimizers(*sides):
                return None
            for rates, side in zip(series, sides, strict=True):
                rate = used_rate(side)
                if rate is None:
                    return None
                rates.append(float(np.float32(rate)))
        if not all(map(any, series)):
            return None  # a side that moves nothing
        index = steps.index((divergence.judged.site.step, divergence.judged.partner.step))
        first, second = (
            replace(
                each,
                stage="learning rate",
                index=index,
                rates=(),
                group_rates={"": tuple(rates)},
                result={"": np.array(rates[index : index + 1])},
            )
            for each, rates in zip(step_segments(self.difference, divergence), series, strict=True)
        )
        found = explain_step(first, second)
        faster = {cause.name for cause in found.causes} & {"schedule-speed", "schedule-restart"}
        return found if faster or (found.causes and not of_rate) else None

    def _told_by_gradients(self, divergence: Divergence, carried: float) -> PlaceVerdict | None:
        """Return the cause of another loss if the gradients of the step tell it."""
        site, partner = divergence.judged.site, divergence.judged.partner
        comparison = self._at(site.step, "gradients")
        if comparison is None or comparison.divergence is None or site.path != partner.path:
            return None
        traces = self.difference.traces
        losses = [float(np.sum(wide(t.read(s)))) for t, s in ((traces.a, site), (traces.b, partner))]
        segments = step_segments(self.difference, comparison.divergence)
        return another_loss((losses[0], losses[1]), *segments, carried)

    @property
    def _gradients_part(self) -> bool:
        return any(place.divergences[0].stage in UNRULED for place in self.places)

    @property
    def _frozen(self) -> set[str]:
        """Parameters that one side alone moves."""
        causes = (cause for place in self.places for cause in place.verdict.causes)
        alone = ("missing-gradient", "not-updated")
        return {name for cause in causes if cause.name in alone for name in cause.where}

    def _is_carried(self, comparison: StageComparison) -> bool:
        """Return whether a stage of the model parts no further than what was explained lets it."""
        if comparison.stage not in UNRULED:
            return False
        if comparison.step in self._other_loss and comparison.stage == "gradients":
            self.checked = False  # nothing tells what the gradients of the other loss should be
            return True
        more = ASSUMED * self._apart(comparison.step)
        return all(each.error <= each.limit + more for each in comparison.judged)

    def _apart(self, step: int) -> float:
        """Return how far apart the parameters are that a step starts from, noise of Adam's left out."""
        steps = self.difference.traces.a.steps
        index = steps.index(step)
        before = self._at(steps[index - 1], "updated") if index else None
        if before is not None and steps[index - 1] == step - 1:
            return max((x.error for x in before.judged if not x.site.port), default=0.0)
        return max(self._distances(index), default=0.0)

    def _at(self, step: int, stage: Stage) -> StageComparison | None:
        comparisons = (
            each for each in self.difference.comparisons if (each.step, each.stage) == (step, stage)
        )
        return next(comparisons, None)

    def _distances(self, index: int) -> Iterator[float]:
        traces = self.difference.traces
        steps = traces.a.steps[index], traces.b.steps[index]
        for pair in pairs_of(traces, self.difference.counterparts, "parameters", *steps):
            yield relative_error(*reversed(read_pair(traces.a, traces.b, pair)), holes=True)


def _without(segment: StepSegment, names: Collection[str]) -> StepSegment:
    """Return a stage without some parameters."""
    if not names:
        return segment
    keys = [key for key in segment.result if leaf_of(key, segment.stage) not in names]
    return replace(segment, result={key: segment.result[key] for key in keys})
