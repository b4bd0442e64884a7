"""From a function of JAX's to its jaxpr, in float64 where it can be had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from parity.verifier.operations.mistakes import mistake
from parity.verifier.operations.program import REFUSES, Program


def trace(program: Program, function: Callable[..., Any], wide: Any, given: Any, own_types: Any) -> Any:
    """A function as a jaxpr, and the shapes of what it returns.

    A loop may refuse leaves in float64, where a module of it remembers the type of its parameters, and
    so may an author; then it is traced in the types that it has, which are not followed when it runs.

    Args:
        program: where it is noted that an author refuses.
        function: what is traced.
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
                said = mistake(error, function) or type(error).__name__
                program.notes.append(REFUSES.format(said))
            return traced
        raise
