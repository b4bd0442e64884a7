"""One training step of one twin as a recording: its loss, its gradients, and the state that it left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from parity.measure.invisible import Sight
from parity.measure.site import AVERAGE, Site, Stage
from parity.runs.state import TrainingState
from parity.twins.steps.trainer import StepGradients


@dataclass(frozen=True)
class StepOutcome:
    """One step of training; steps are counted from 1."""

    before: TrainingState
    taken: StepGradients
    after: TrainingState

    def __contains__(self, site: Site) -> bool:
        return site in self.sites(site.stage)

    def read(self, site: Site) -> np.ndarray:
        """Return the loss, a gradient, or a tensor of the state after the step."""
        if site.stage == "loss":
            return np.array(self.taken.loss)
        arrays = self.taken.gradients if site.stage == "gradients" else self.after.parts()[site.level]
        return arrays[site.path]

    def read_before(self, site: Site) -> np.ndarray:
        """Return a tensor of the state before the step."""
        return self.before.parts()[site.level][site.path]

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """Return all sites in the order in which a step computes them, or those of one stage."""
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


class VisibleOutcome:
    """A step without those updated parameters and averages that the loss cannot see.

    Gradients and moments are read whole: on their scale the noise in numbers that the loss cannot
    see is negligible.

    Args:
        clear: mask of the numbers of each parameter that move in a clear direction; others are left out.
    """

    def __init__(
        self, outcome: StepOutcome, sight: Sight, clear: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self.outcome = outcome
        self._sight, self._clear = sight, clear

    def __contains__(self, site: Site) -> bool:
        return site in self.outcome and bool(self.read(site).size)

    def read(self, site: Site) -> np.ndarray:
        """Return the visible numbers at a site."""
        return self._visible(site, self.outcome.read(site))

    def sites(self, stage: Stage | None = None) -> Iterator[Site]:
        """Return the sites with visible numbers in order, or those of one stage."""
        return (site for site in self.outcome.sites(stage) if self.read(site).size)

    def _visible(self, site: Site, array: np.ndarray) -> np.ndarray:
        if site.stage != "updated":
            return array
        part = self._sight.seen(site.path, array)
        return part if self._clear is None else part[self._sight.seen(site.path, self._clear[site.path])]


class Change(VisibleOutcome):
    """A step's visible part, with the step's change in place of parameters and averages, in float64."""

    def read(self, site: Site) -> np.ndarray:
        """Return the visible numbers at a site."""
        after = super().read(site)
        if site.stage != "updated":
            return after
        return after.astype(np.float64) - self._visible(site, self.outcome.read_before(site))
