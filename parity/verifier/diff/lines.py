"""The lines of source: two models compared operation by operation, forward and then backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from parity.verifier.diff.subject import Subject
from parity.verifier.operations import Comparison, compare, compare_programs
from parity.verifier.operations.backward import record_gradients
from parity.verifier.operations.callables import is_a
from parity.verifier.operations.program import Program
from parity.verifier.operations.weights import pair_gradients
from vit_config import InputError


def lines_of(a: Callable[[], Subject], b: Callable[[], Subject]) -> Comparison | str:
    """The comparison of two models by their operations; or one sentence why there is none."""
    try:
        return compare_models(a(), b())
    except ImportError as error:
        return f"both must run in this environment, which lacks {error.name}"
    except InputError as error:
        return str(error)
    except Exception as error:  # both models ran: what cannot be recorded does not undo what was found
        return f"{type(error).__name__}: {error}"


def compare_models(a: Subject, b: Subject) -> Comparison:
    """Two models by their operations, in float64: forward; if that is the same, backward.

    Raises:
        InputError: a model that cannot be run or recorded.
    """
    forward = compare(_called(a), _called(b))
    if forward.verdict == "DIFFERENT":
        return forward
    try:
        programs = _gradients(a, "A"), _gradients(b, "B")
    except Exception:  # what has no gradient, or none in float64, as a traced module
        return forward
    found = compare_programs(*programs, pair=pair_gradients)
    return replace(found, backward=True, seconds=forward.seconds + found.seconds)


def _called(subject: Subject) -> Any:
    """A model as `compare` takes it."""
    if is_a(subject.model, "flax.linen"):
        return subject.model, subject.variables, subject.args or dict(subject.kwargs)
    return partial(subject.model, *(subject.variables or ()), **subject.kwargs), subject.args


def _gradients(subject: Subject, name: str) -> Program:
    return record_gradients(
        subject.model, subject.variables, subject.args, subject.kwargs, name,
        torch=subject.framework == "torch",
    )  # fmt: skip
