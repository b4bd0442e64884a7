"""Mistakes in the training step: in the loss, in the schedule and in the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from parity.faults.twin import TWINS, Twin, TwinName, operations_of
from parity.measure.traces import Stage
from vit_config import Recipe

Rate = Callable[[Callable[..., Any], Recipe, Any, int], Any]
"""Function of the schedule, a recipe, a step and the steps per epoch; it returns a learning rate."""


@dataclass(frozen=True)
class StepFault:
    """A deliberate mistake that can be injected into the training of a twin."""

    name: str
    summary: str
    stage: Stage
    """First stage that it changes, in which a comparison must locate it."""
    cause: str | None
    """Slug of the cause that `parity diff` must name first; None if it is no known cause."""
    recipe: Callable[[Recipe], dict[str, Any]] = field(default=lambda recipe: {})
    """Returns fields of the recipe with the wrong values that the twin gets."""
    loss: Callable[[Twin, Any], Any] | None = None
    """Returns the wrong loss for the loss of each image (B,)."""
    rate: Rate | None = None
    twins: tuple[TwinName, ...] = TWINS
    """Twins that can have it."""
    needs: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the recipe, each with a test of the value that it needs to have the fault."""

    @contextmanager
    def patched(self, twin: TwinName) -> Iterator[None]:
        """Make a twin's trainer commit this mistake inside the context."""
        if twin == "jax":
            from vit_jax import optim, step

            owners = (step, optim)
        else:
            from vit_torch import step

            owners = (step,)
        with ExitStack() as stack:
            if change := self.loss:
                right_loss, operations = step.cross_entropy, operations_of(twin)
                wrong_loss = lambda *a, **k: change(operations, right_loss(*a, **k))  # noqa: E731
                stack.enter_context(mock.patch.object(step, "cross_entropy", wrong_loss))
            if rate := self.rate:
                right: Any = step.learning_rate

                def wrong_rate(recipe: Any, number: Any, per: int, *xp: Any) -> Any:
                    return rate(lambda *args: right(*args, *xp), recipe, number, per)

                for owner in owners:
                    stack.enter_context(mock.patch.object(owner, "learning_rate", wrong_rate))
            yield


STEP_FAULTS: dict[str, StepFault] = {
    each.name: each
    for each in (
        StepFault("loss_sum", "the loss summed over the images", "loss", "loss-reduction",
                  loss=lambda twin, loss: loss * len(loss)),
        StepFault("schedule_one_ahead", "the learning rate of the next step", "learning rate",
                  "schedule-shift", rate=lambda rate, r, step, per: rate(r, step + 1, per)),
        StepFault("beta2", "beta2 0.9989", "moments", "beta2", lambda r: {"beta2": 0.9989}),
    )
}  # fmt: skip
