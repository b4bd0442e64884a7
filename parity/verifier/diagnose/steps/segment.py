"""A stage of a training step: what went in, what came out, and nothing of how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.format import ModuleFacts


@dataclass(frozen=True)
class StepSegment:
    """One stage of one training step of one program: what it had, and what it made of it.

    Every dictionary is by the names of parameters, all values are float64.
    """

    framework: str
    step: int
    """Counted from 0 within the recording."""
    stage: Stage
    """What differs: ``loss``, ``gradients``, ``clipped``, ``learning rate``, ``moments`` or
    ``updated``."""
    result: Mapping[str, np.ndarray]
    """That stage's values; moments as ``NAME exp_avg``, ``NAME exp_avg_sq``, ``NAME
    momentum_buffer``."""
    parameters: Mapping[str, np.ndarray]
    """Before the step."""
    gradients: Mapping[str, np.ndarray]
    """Before clipping."""
    clipped: Mapping[str, np.ndarray]
    """What the optimiser was given; empty if that was not recorded."""
    rates: tuple[float, ...]
    """The learning rate of every recorded step, up to the last."""
    moments_before: Mapping[str, np.ndarray]
    """As the recorded step before left them; empty at the first."""
    moments: Mapping[str, np.ndarray]
    """As this step left them."""
    count: int | None
    """The optimiser's own number of this update, counted from 1; None if unknown."""
    logits: np.ndarray | None = None
    """(B, classes), of this step's forward pass."""
    labels: np.ndarray | None = None
    """(B,) integers, or (B, classes)."""
    losses: tuple[float, ...] = ()
    """Of every recorded step."""
    optimizer: ModuleFacts | None = None
    """Its class and defaults, if recorded."""
    index: int = 0
    """Its place among the recorded steps: ``rates[index]`` is its own learning rate."""
    group_rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The learning rates of every recorded step, by group; the only one's name is empty."""
    gradients_before: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Of the step before; empty at the first."""
    clipped_before: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Likewise, what the optimiser was given."""
    following: StepSegment | None = None
    """The moments of the next step, where those before this one were not recorded."""


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a stage may have been computed."""

    choices: Mapping[str, str]
    """What it assumes, aspect by aspect, in words: ``{"momentum": "beta1 0.9"}``. Two
    hypotheses of the same aspects that differ in one choice differ in one thing."""
    value: Any
    """What would then have come out: a dictionary like `StepSegment.result`."""
