"""Injection of a fault into the training step of the PyTorch twin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from parity.faults.step_table import StepFault
from parity.faults.twin_torch import TorchOperations
from vit_torch import step


@contextmanager
def patched(fault: StepFault) -> Iterator[None]:
    """Make the twin's trainer commit this mistake inside the context."""
    with ExitStack() as stack:

        def replace(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, value))

        if change := fault.loss:
            cross_entropy = step.cross_entropy
            replace(
                step, "cross_entropy", lambda *a, **k: change(TorchOperations(), cross_entropy(*a, **k))
            )
        if rate := fault.rate:
            right = step.learning_rate
            replace(step, "learning_rate", lambda recipe, number, per: rate(right, recipe, number, per))
        yield
