"""Sites: the places in a program at which a tensor is seen."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Stage = Literal[
    "batch",
    "parameters",
    "forward",
    "loss",
    "gradients",
    "clipped",
    "learning rate",
    "moments",
    "updated",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the order of one training step. ``forward`` holds the inputs and outputs of modules;
``parameters`` are those before the step,
``updated`` after it."""

Level = Literal["parameters", "modules", "output", "loss", "gradients"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The levels that a check of one forward and backward pass reports, each with a tolerance."""

AVERAGE = "ema"
"""Port of a moving average of parameters."""


class Where(NamedTuple):
    """The edge of a module at which a tensor is seen, whatever the step and stage."""

    path: str
    port: str
    call: int


class Site(NamedTuple):
    """The place in a program at which a tensor is seen."""

    step: int
    stage: Stage
    path: str
    """Path of a module, empty for the whole model; or the name of a parameter or of a logged value."""
    port: str = ""
    """``in`` or ``out`` of a module, with ``[i]`` or ``.name`` for one of several; a kind of
    moment; ``ema`` for an averaged parameter."""
    call: int = 0
    """Number of the module's call in this step, counted from 0."""

    def __str__(self) -> str:
        call = f" (call {self.call + 1})" if self.call else ""
        return f"{self.path or '(model)'} {self.port}".strip() + call

    @property
    def level(self) -> str:
        """Its kind's name in tolerances and reports: a `Level`, a stage, a kind of moment, ``ema``."""
        if self.stage == "forward":
            return "output" if self.path == "" and self.port.startswith("out.") else "modules"
        if self.stage in ("moments", "updated"):
            return self.port or "parameters"
        return self.stage

    @property
    def name(self) -> str:
        """The tensor's name in its level: an output's or a parameter's own name, else the whole site."""
        if self.level == "output":
            return self.port.removeprefix("out.")
        return str(self) if self.stage == "forward" else self.path


def output_site(name: str, step: int = 0) -> Site:
    """Return the site of a named field of a model's output."""
    return Site(step, "forward", "", f"out.{name}")
