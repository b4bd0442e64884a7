"""What a model is fed in place of its own activations and gradients: those of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from parity.measure.site import Where
from parity.measure.traces import Site, Stage, Trace
from parity.verifier.diff.nudge import nudged


@dataclass(frozen=True)
class Feed:
    """The reference's tensors, by where the fed model sees them.

    With every module given the reference's input, and its output replaced by the reference's, an error
    is seen at the one place where it is made, in the backward pass as in the forward pass.
    """

    trace: Trace
    sites: dict[tuple[str, str, int], tuple[tuple[str, str, int], tuple[int, ...] | None]]
    """From a place in the fed model to the place in the reference, and the axes to its layout."""
    nudge: int | None = None
    """If given, every tensor is moved by one unit in the last place, at random."""

    def value(self, stage: Stage, where: Where) -> np.ndarray | None:
        """What is fed there, in the fed model's layout; None leaves the model's own."""
        found = self.sites.get((where.path, where.port, where.call))
        if found is None:
            return None
        (path, port, call), axes = found
        site = Site(self.trace.steps[0], stage, path, port, call)
        if site not in self.trace or self.trace[site].statistics:
            return None
        array = self.trace.read(site)
        array = array if axes is None else array.transpose(axes)
        return array if self.nudge is None else nudged(array, self.nudge, f"{stage} {where}")

    def to_json(self) -> dict[str, Any]:
        """For a process that runs the model."""
        pairs = [[list(own), list(other), axes] for own, (other, axes) in self.sites.items()]
        return {"trace": str(self.trace.path), "sites": pairs, "nudge": self.nudge}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Feed:
        """What `to_json` gave."""
        sites = {
            tuple(own): (tuple(other), None if axes is None else tuple(axes))
            for own, other, axes in content["sites"]
        }
        return cls(Trace(Path(content["trace"])), sites, content["nudge"])  # type: ignore[arg-type]
