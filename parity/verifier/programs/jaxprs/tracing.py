"""Tracing a JAX function to its jaxpr, in float64 where possible."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from parity.verifier.programs.mistakes import mistake
from parity.verifier.programs.program import REFUSES, Program


def trace(program: Program, function: Callable[..., Any], wide: Any, given: Any, own_types: Any) -> Any:
    """Trace a function; return its jaxpr and the shapes of its results.

    A loop may refuse leaves in float64, if a module in it remembers the type of its parameters, and so
    may an author; then the function is traced in its own types, which are ignored when it runs.

    Args:
        program: the program whose notes say so, if an author refuses.
        function: the function to trace.
        wide: its arguments in float64.
        given: its arguments as they were given.
        own_types: a context in which these keep their types.
    """
    import jax

    make = jax.make_jaxpr(function, return_shape=True)
    try:
        return make(*wide)
    except Exception as error:
        with suppress(Exception), own_types:
            traced = make(*given)
            if not isinstance(error, TypeError):
                reason = mistake(error, function) or type(error).__name__
                program.notes.append(REFUSES.format(reason))
            return traced
        raise
