"""One training step of one twin as a recording: its loss, its gradients, and the state that it left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from parity.measure.invisible import Sight
from parity.measure.site import AVERAGE, Site, Stage
from parity.runs.state import TrainingState
from parity.twins.steps.trainer import Taken


@dataclass(frozen=True)
class Outcome:
    """A step; steps are counted from 1."""

    before: TrainingState
    taken: Taken
    after: TrainingState

    def __contains__(self, site: Site) -> bool:
        return site in self.sites(site.stage)

    def read(self, site: Site) -> np.ndarray:
        """The loss, a gradient, or a tensor of the state after the step."""
        if site.stage == "loss":
            return np.array(self.taken.loss)
        arrays = self.taken.gradients if site.stage == "gradients" else self.after.parts()[site.level]
        return arrays[site.path]

    def read_before(self, site: Site) -> np.ndarray:
        """A tensor of the state before the step."""
        return self.before.parts()[site.level][site.path]

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """All places, in the order in which a step computes what is there; of one stage if given."""
        return (site for site in self._sites() if stage in (None, site.stage))

    def _sites(self) -> Iterator[Site]:
        step = self.after.step
        yield Site(step, "loss", "mean")
        for name in self.taken.gradients:
            yield Site(step, "gradients", name)
        for moment, arrays in self.after.moments.items():
            for name in arrays:
                yield Site(step, "moments", name, moment)
        for name in self.after.params:
            yield Site(step, "updated", name)
        for name in self.after.ema or ():
            yield Site(step, "updated", name, AVERAGE)


class Seen:
    """What the loss sees of a step: of the updated parameters and averages.

    Gradients and moments are read whole: on their scale the noise in what the loss cannot see is
    nothing.

    Args:
        clear: which numbers of each parameter move in a clear direction; the others are left out.
    """

    def __init__(
        self, outcome: Outcome, sight: Sight, clear: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.outcome = outcome
        self._sight, self._clear = sight, clear

    def __contains__(self, site: Site) -> bool:
        return site in self.outcome and bool(self.read(site).size)

    def read(self, site: Site) -> np.ndarray:
        """What is seen there."""
        return self._visible(site, self.outcome.read(site))

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """All places at which there is something to be seen, in order; of one stage if given."""
        return (site for site in self.outcome.sites(stage) if self.read(site).size)

    def _visible(self, site: Site, array: np.ndarray) -> np.ndarray:
        if site.stage != "updated":
            return array
        seen = self._sight.seen(site.path, array)
        return seen if self._clear is None else seen[self._sight.seen(site.path, self._clear[site.path])]


class Change(Seen):
    """The same, of parameters and averages the change that the step made, in float64."""

    def read(self, site: Site) -> np.ndarray:
        """What is seen there."""
        after = super().read(site)
        if site.stage != "updated":
            return after
        return after.astype(np.float64) - self._visible(site, self.outcome.read_before(site))
