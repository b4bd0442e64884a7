"""A stretch of one model's own code: what went in, what came out, and nothing of how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.measure.site import Stage
from parity.measure.traces.format import ModuleFacts


@dataclass(frozen=True)
class Segment:
    """The computation between the last tensor that agreed and the first that does not, in one model.

    It lies within one module: either a leaf, whose whole function it is, or a module that calls others,
    of whose own code it is the part between two of those calls. Images and feature maps are
    channels-last, parameters in PyTorch's layout, whatever framework they are from; all values are
    float64.
    """

    framework: str
    """``torch``, ``jax`` or empty."""
    module: ModuleFacts
    """Whose code it is; the path is empty for the model itself."""
    target: str
    """What came out: ``out``, ``out[1]`` ... of the module, or ``norm2 in``, what a child was given."""
    result: np.ndarray
    """Its value."""
    before: Mapping[str, np.ndarray]
    """Every tensor the module had seen by then, oldest first: what it was given (``in``, ``in[1]``,
    ``in.rotation``), and what its children returned (``attn.qkv out``)."""
    parameters: Mapping[str, np.ndarray]
    """The module's own, by their bare names: ``weight``, ``bias``, ``cls_token``, ``gamma``."""
    children: Mapping[str, ModuleFacts] = field(default_factory=dict)
    """The modules below it, by their paths relative to it."""
    around: tuple[ModuleFacts, ...] = ()
    """The modules it lies in, innermost first, the whole model last."""
    dtype: str = "float64"
    """The type it was computed in."""
    beside: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The parameters of its siblings of the same class, by their names in the module around it:
    ``ls2.gamma``."""
    called: tuple[str, ...] = ()
    """The modules below it that were called, in the order of their first calls; of two segments that are
    compared, both as A calls them."""
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Every tensor that its children had been given by then, which its own code had made: ``kv in``."""

    def fact(self, *names: str) -> Any:
        """The first of these attributes that the module, or one around it, has; None if none has."""
        for module in (self.module, *self.around):
            for name in names:
                if name in module.facts:
                    return module.facts[name]
        return None


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
    """One way in which a segment may have been computed."""

    choices: Mapping[str, str]
    """What it assumes, aspect by aspect, in words: ``{"activation": "exact GELU"}``, or
    ``{"scale": "1/sqrt(d)", "order": "q, k, v", "heads": "4 of 8"}``. Two hypotheses of the same aspects
    that differ in one choice differ in one thing."""
    value: Any
    """What would then have come out: an array like `Segment.result`, or a dictionary like
    `StepSegment.result`."""
