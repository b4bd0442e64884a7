"""Source lines of the backward rules that a user writes.

JAX runs the backward rule of a `jax.custom_vjp` when it transposes the call, and gives all that the rule
computes the line of the call. But the rule may be what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from parity.measure.versions.of_jax import BACKWARD_RULE, file_of, transpositions
from parity.verifier.programs.sources import is_user


class _Now:
    """Stand-in for the lines that run when they are asked for; None would stand for those before."""

    def __bool__(self) -> bool:
        return False

    def as_python_traceback(self) -> None:
        """Return what JAX would add to an exception: nothing."""


@contextmanager
def own_lines() -> Iterator[None]:
    """Give what a user's backward rule computes the rule's lines while entered; a library's rule keeps
    the line of its call."""
    from jax.extend import source_info_util

    tables = transpositions()
    entries = [(table, each) for table in tables for each in table if each.name == BACKWARD_RULE]
    if not entries:  # a version of JAX that has no such primitive
        yield
        return
    table, primitive = entries[0]
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
    """Return whether a wrapped function was written by the user."""
    file = file_of(rule)
    return bool(file) and is_user(file)
