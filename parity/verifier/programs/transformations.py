"""Transformations of optax that bear the line of the user's that built them, where their numbers are.

What such a transformation computes is written in optax; of the user's own lines, only the one that calls
the whole chain runs then. So the functions of each are called through a frame of the line that built it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from parity.verifier.programs.operation import BUILT, Source
from parity.verifier.programs.sources import is_user


def noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the constructor of a pair of functions, init and update: both then bear its caller's line."""

    def made(kind: type, *args: Any, **kwargs: Any) -> Any:
        functions = original(kind, *args, **kwargs)
        line = line_outside(sys._getframe(1))
        return original(kind, *(_at(line, each) for each in functions)) if line else functions

    return made


def noting_methods(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the initialiser of a class with such methods."""

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        line = line_outside(sys._getframe(1))
        for name in ("init", "update") if line else ():
            setattr(self, name, _at(line, getattr(self, name)))

    return initialised


def noting_result(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that returns a schedule."""

    def made(*args: Any, **kwargs: Any) -> Any:
        line = line_outside(sys._getframe(1))
        schedule = original(*args, **kwargs)
        return _at(line, schedule) if line else schedule

    return made


def schedules(optax: Any) -> Iterator[tuple[Any, str]]:
    """Yield the modules and the names under which optax has functions that return a schedule."""
    for module in (optax, optax.schedules):
        for name, value in vars(module).items():
            if getattr(value, "__annotations__", {}).get("return") is optax.Schedule:
                yield module, name


def line_outside(frame: FrameType | None, own: Any = None) -> Source | None:
    """Return the innermost line of the user's code, outside of an object's own methods."""
    while frame is not None:
        code = frame.f_code
        if is_user(code.co_filename) and (own is None or frame.f_locals.get("self") is not own):
            return Source(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


def _at(line: Source | None, function: Any) -> Any:
    """Return a function that is called through a frame of a line; one of the user's as it is."""
    code: CodeType | None = getattr(function, "__code__", None)
    if line is None or code is None or is_user(code.co_filename):
        return function
    call = lambda *args, **kwargs: function(*args, **kwargs)  # noqa: E731 - a frame of one line
    frame = call.__code__.replace(
        co_filename=line.file, co_firstlineno=line.line, co_name=BUILT, co_qualname=BUILT
    )
    return FunctionType(frame, globals(), BUILT, None, call.__closure__)
