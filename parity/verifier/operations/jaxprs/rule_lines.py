"""Lines of the rules that a program gives for its gradients.

JAX runs the backward rule of a `jax.custom_vjp` when it transposes the call, and gives all that the rule
computes the line of the call. But what is wrong may be the rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from parity.measure.versions.of_jax import BACKWARD_RULE, file_of, transpositions
from parity.verifier.operations.sources import is_user


class _Now:
    """Stands for the lines that run when they are asked for; None would stand for those before."""

    def __bool__(self) -> bool:
        return False

    def as_python_traceback(self) -> None:
        """What JAX would add to an exception."""


@contextmanager
def own_lines() -> Iterator[None]:
    """While entered, what a user's backward rule computes has the rule's lines; a library's rule keeps
    the line of its call."""
    from jax.extend import source_info_util

    found = [(table, each) for table in transpositions() for each in table if each.name == BACKWARD_RULE]
    if not found:  # a version of JAX that has no such primitive
        yield
        return
    table, primitive = found[0]
    plain = table[primitive]

    def transposed(*args: Any, bwd: Any, **kwargs: Any) -> Any:
        if not _is_of_user(bwd):
            return plain(*args, bwd=bwd, **kwargs)
        names = source_info_util.current_name_stack()
        with source_info_util.user_context(_Now(), name_stack=names):  # type: ignore[arg-type]
            return plain(*args, bwd=bwd, **kwargs)

    table[primitive] = transposed
    try:
        yield
    finally:
        table[primitive] = plain


def _is_of_user(rule: Any) -> bool:
    """Whether a wrapped function was written by the user."""
    file = file_of(rule)
    return bool(file) and is_user(file)
