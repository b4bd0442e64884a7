"""A stage of a training step: its inputs and its results, without the way they were computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.format import ModuleFacts


@dataclass(frozen=True)
class StepSegment:
    """Inputs and results of one stage of one training step of one program.

    Keys of dictionaries are the names of parameters; all values are float64.
    """

    framework: str
    step: int
    """Counted from 0 within the recording."""
    stage: Stage
    """The stage that differs: ``loss``, ``gradients``, ``clipped``, ``learning rate``, ``moments`` or
    ``updated``."""
    result: Mapping[str, np.ndarray]
    """Values of that stage; moments as ``NAME exp_avg``, ``NAME exp_avg_sq``, ``NAME
    momentum_buffer``."""
    parameters: Mapping[str, np.ndarray]
    """Parameters before the step."""
    gradients: Mapping[str, np.ndarray]
    """Gradients before clipping."""
    clipped: Mapping[str, np.ndarray]
    """Gradients that the optimiser was given; empty if they were not recorded."""
    rates: tuple[float, ...]
    """Learning rate of every recorded step."""
    moments_before: Mapping[str, np.ndarray]
    """Moments after the step before; empty at the first recorded step."""
    moments: Mapping[str, np.ndarray]
    """Moments after this step."""
    count: int | None
    """Number of this update, counted by the optimiser from 1; None if unknown."""
    logits: np.ndarray | None = None
    """Logits of this step's forward pass, (B, classes)."""
    parts: tuple[int, ...] = ()
    """Rows of the logits that each micro-batch of this step has."""
    labels: np.ndarray | None = None
    """Labels, (B,) integers or (B, classes)."""
    losses: tuple[float, ...] = ()
    """Loss of every recorded step."""
    optimizer: ModuleFacts | None = None
    """Class and defaults of the optimiser, if recorded."""
    index: int = 0
    """Position of this step among the recorded ones: ``rates[index]`` is its learning rate."""
    group_rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Learning rates of every recorded step, by group; the name of an only group is empty."""
    gradients_before: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Gradients of the step before; empty at the first recorded step."""
    gradients_single: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Gradients of micro-batches as a mean in float32; empty if there is no such mean."""
    clipped_before: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Gradients that the optimiser was given in the step before; empty at the first."""
    clipped_by_both: bool = False
    """Whether both programs recorded the gradients that their optimisers were given: a difference in how
    these were clipped is no difference of the moments."""
    following: StepSegment | None = None
    """Moments of the next step, if those before this step were not recorded."""


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a stage may have been computed."""

    choices: Mapping[str, str]
    """Assumptions in words, by aspect: ``{"momentum": "beta1 0.9"}``. Two hypotheses of the same aspects
    that differ in one choice differ in one thing."""
    value: Any
    """Result under these assumptions: a dictionary like `StepSegment.result`."""
