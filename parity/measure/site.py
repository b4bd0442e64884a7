"""Places in a program at which a tensor is seen."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Stage = Literal[
    "batch",
    "parameters",
    "forward",
    "loss",
    "backward",
    "gradients",
    "clipped",
    "learning rate",
    "moments",
    "updated",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the order of one training step. ``forward`` holds the inputs and outputs of modules, ``backward``
the gradients of the same tensors; ``parameters`` are those before the step, ``updated`` after it."""

Level = Literal["parameters", "modules", "output", "loss", "gradients"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""What a check of one forward and backward pass reports, and has a tolerance for each."""

AVERAGE = "ema"
"""The port of a moving average of parameters."""


class Where(NamedTuple):
    """A tensor at the edge of a module, whatever the step and stage."""

    path: str
    port: str
    call: int


class Site(NamedTuple):
    """Where in a program a tensor is seen."""

    step: int
    stage: Stage
    path: str
    """Of a module, empty for the whole model; or the name of a parameter or of a logged value."""
    port: str = ""
    """``in`` or ``out`` of a module, with ``[i]`` or ``.name`` for one of several; a kind of moment;
    ``ema`` of what is averaged."""
    call: int = 0
    """Which call of the module in this step, counted from 0."""

    def __str__(self) -> str:
        call = f" (call {self.call + 1})" if self.call else ""
        return f"{self.path or '(model)'} {self.port}".strip() + call

    @property
    def level(self) -> str:
        """What tolerances and reports call tensors of its kind: a `Level`, a kind of moment, ``ema``."""
        if self.stage == "forward":
            return "output" if self.path == "" and self.port.startswith("out.") else "modules"
        if self.stage in ("moments", "updated"):
            return self.port or "parameters"
        return self.stage

    @property
    def name(self) -> str:
        """What tells it from the others of its level: of a named output, or of a parameter, its name."""
        if self.level == "output":
            return self.port.removeprefix("out.")
        return str(self) if self.stage in ("forward", "backward") else self.path


def output_site(name: str, step: int = 0) -> Site:
    """The place of a named field of what a model returns."""
    return Site(step, "forward", "", f"out.{name}")
