"""One line on what went wrong in a user's own program, told apart from faults of this package."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from parity.measure.versions import of_jax
from parity.verifier.programs.callables import is_a
from parity.verifier.programs.memory import TooLargeError
from parity.verifier.programs.methods import closed_over
from parity.verifier.programs.sources import calls_a_program, innermost, raised_at
from vit_config.errors import USER_ERRORS, InputError, one_line


class UnreadableError(InputError):
    """A tensor of a program whose numbers cannot be read."""


@contextmanager
def in_one_line(name: str, function: Any = None, args: Any = (), kwargs: Any = None) -> Iterator[None]:
    """Turn what a user's program raises in the block into an InputError that begins with a name.

    Args:
        name: what the user calls it.
        function: the program that is run, with its arguments, where there is one.
        args: its positional arguments.
        kwargs: its named arguments.

    Raises:
        InputError: the program failed. What this package raises by itself stays what it is.
    """
    try:
        with warnings_of_what_works():
            yield
    except TooLargeError as error:
        raise InputError(f"{name}: {error}") from None
    except UnreadableError as error:
        frames = reversed(traceback.extract_tb(error.__traceback__))
        line = innermost((each.filename, each.lineno or 0, each.name) for each in frames)
        where = f" ({line.file}:{line.line})" if line else ""
        raise InputError(f"{name}: {error}{where}") from error
    except USER_ERRORS:
        raise
    except (Exception, SystemExit) as error:
        text = mistake(error, function, args, kwargs)
        if text is None:
            raise
        raise InputError(f"{name}: {text}") from error


@contextmanager
def warnings_of_what_works() -> Iterator[None]:
    """Hold warnings back until the block ends; drop them where it fails: one line says what is wrong."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for each in caught:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def mistake(
    error: BaseException, function: Any = None, args: Any = (), kwargs: Any = None
) -> str | None:
    """Say what a user's program did wrong, with its file and line; None for a fault of this package."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__} in {error.filename}:{error.lineno}: {error.msg}"
    if is_sealed(function) or _came_through(error, of_jax.EXPORT_FOLDER):
        return SEALED
    unbound = _unbound(function, args, kwargs or {}) if isinstance(error, TypeError) else ""
    if unbound:
        return unbound if args or kwargs else f"{unbound}; give them beside it, as (callable, inputs)"
    line = raised_at(error)
    if line is None and not calls_a_program(error):
        return None
    where = f" in {line.file}:{line.line}" if line else ""
    if isinstance(error, ModuleNotFoundError) and line is not None and error.name:
        return f"{line.file}:{line.line} imports {error.name}, which {sys.executable} lacks; install it"
    if isinstance(error, ImportError) and (first := _first_cause(error)) is not error:
        why = f"{type(first).__name__}: {message_of(first).rstrip('.')}"
        return f"{type(error).__name__}{where}: {message_of(error).rstrip('.')}; at first {why}"
    if isinstance(error, SystemExit):  # whose status could be that of two programs that differ
        return f"sys.exit({error.code!r}){where}: a program that is compared must not end the process"
    compiled = _COMPILED.search(str(error))
    if compiled:
        return (
            f"torch's {compiled[1]}{where} calls functions that it compiles, which cannot be"
            " followed; write it as Python's own branch, loop or call"
        )
    held = closed_over(function) if _is_of_types(error) else []
    if held:
        return (
            f"{type(error).__name__}{where}: the function closes over {' and '.join(held)}, which is not"
            " cast to float64 with everything else; give the module itself, as (module, inputs), or its"
            " parameters as an argument"
        )
    text = f"{type(error).__name__}{where}: {message_of(error)}"
    if "does not require grad" in text:
        return f"{text}; a program that differentiates is compared with --gradients (gradients=True)"
    if "needs PRNG for" in text:
        return f"{text}; inputs may be a dictionary, whose True or False turns such layers off"
    if "lhs feature dimension" in text:
        return f"{text.rstrip('.')}; Flax's convolutions take channels last, (B, H, W, C)"
    return f"{text.rstrip('.')}; a JAX program must run under jax.jit" if _is_of_tracing(error) else text


def _first_cause(error: BaseException) -> BaseException:
    """Return the exception from which others were raised: libraries that import lazily hide it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def message_of(error: BaseException) -> str:
    """Return an exception's message as one line: its first line, or all where that announces a list."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines if lines and lines[0].rstrip().endswith(":") else lines[:1]
    return " ".join(one_line("\n".join(text)).split())


_COMPILED = re.compile(r"no rule registered for HigherOrderOperator (\w+)")
"""What torch says of an operator whose operands are functions."""

GIVE = "a side is (callable, inputs), or names a function that returns this"
"""What can be compared."""

SEALED = (
    "is a program that JAX exported or compiled, which holds no operations that can be followed; give"
    " the function that it was made from"
)


def is_sealed(function: Any) -> bool:
    """Return whether something is a program of `jax.export`, or one compiled ahead of time."""
    owner = getattr(function, "__self__", function)
    return any(is_a(owner, module) for module in of_jax.SEALED)


def refuse_arguments(name: str, function: Any) -> None:
    """Refuse a building function that cannot be called without arguments.

    Raises:
        InputError: it needs some.
    """
    needed = _unbound(function, (), {})
    if needed:
        raise InputError(
            f"{name}: {needed}; name a function of no arguments that returns (callable, inputs)"
        )


def _unbound(function: Any, args: Any, kwargs: Any) -> str:
    """Say why a function cannot be called with some arguments, whatever they hold; empty if it can."""
    target = function
    if is_a(function, "torch.nn"):
        target = function.forward
    elif is_a(function, "flax"):
        target = function.__call__
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # no function, or one that does not tell
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        called = getattr(target, "__qualname__", type(function).__qualname__).rpartition("<locals>.")[2]
        count = len(args) + len(kwargs)
        given = f"{count} input{'s' * (count != 1)}" if count else "no inputs"
        given += f" ({', '.join(kwargs)})" if kwargs else ""
        return f"{called} was given {given}: {error}"
    return ""


def _is_of_types(error: BaseException) -> bool:
    """Return whether an exception is about number types, or about state changed while tracing."""
    words = ("dtype", "scalar type", "trace level", "incompatible types")
    return any(word in str(error) for word in words)


def _is_of_tracing(error: BaseException) -> bool:
    """Return whether JAX raised an exception because tracing needs a number known only at run time."""
    return any(base.__module__ == "jax.errors" for base in type(error).__mro__)


def _came_through(error: BaseException, folder: str) -> bool:
    """Return whether an exception came through the code in a folder."""
    return any(folder in frame.filename for frame in traceback.extract_tb(error.__traceback__))
