"""Injection of a fault into the training step of the JAX twin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from parity.faults.step_table import StepFault
from parity.faults.twin_jax import JaxOperations
from vit_jax import optim, step


@contextmanager
def patched(fault: StepFault) -> Iterator[None]:
    """Make the twin's trainer commit this mistake inside the context."""
    with ExitStack() as stack:

        def replace(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        if change := fault.loss:
            cross_entropy = step.cross_entropy
            replace(
                step, "cross_entropy", lambda *a, **k: change(JaxOperations(), cross_entropy(*a, **k))
            )
        if rate := fault.rate:
            right: Any = optim.learning_rate

            def wrong_rate(recipe: Any, number: Any, per: int, xp: Any) -> Any:
                return rate(lambda *args: right(*args, xp), recipe, number, per)

            for owner in (step, optim):
                replace(owner, "learning_rate", wrong_rate)
        yield
