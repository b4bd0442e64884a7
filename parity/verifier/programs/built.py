"""The line of the user's code at which a module was built, where its epsilon or its padding is given."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from parity.verifier.programs.program import Program, Source
from parity.verifier.programs.sources import is_user

_LINE = "_built_at"
"""Attribute of a module that holds its line, so that copies of the module have it, too."""
_CLASSES = ("torch.nn.Module", "keras.layers.Layer")


@contextmanager
def watched() -> Iterator[None]:
    """Note, while entered, the line at which each module of torch and each layer of Keras is built.

    Frameworks that are imported meanwhile are watched as well.
    """
    with ExitStack() as stack:
        left: list[str] = list(_CLASSES)
        imports = builtins.__import__

        def watch() -> None:
            for path in [path for path in left if _found(path) is not None]:
                left.remove(path)
                stack.enter_context(_replaced(_found(path), "__init__", _noting))

        def imported(*args: Any, **kwargs: Any) -> Any:
            module = imports(*args, **kwargs)
            watch()
            return module

        watch()
        builtins.__import__ = imported
        stack.callback(setattr, builtins, "__import__", imports)
        yield


@contextmanager
def layers_called() -> Iterator[dict[str, Source]]:
    """Yield the lines at which Keras's layers were built, by their names; filled, while entered, with
    those that are called."""
    lines: dict[str, Source] = {}

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            line = line_of(self)
            if line is not None:
                lines[self.name] = line
            return original(self, *args, **kwargs)

        return called

    made = _found("keras.layers.Layer")
    with ExitStack() as stack:
        if made is not None:
            stack.enter_context(_replaced(made, "__call__", noting))
        yield lines


def add_lines(program: Program, lines: dict[str, Source]) -> None:
    """Add to a program the lines of the layers that it names."""
    for path in {op.module for op in program.operations} if lines else ():
        line = lines.get(path.rpartition(".")[2])
        if line is not None:
            program.built[path] = line


def line_of(module: Any) -> Source | None:
    """Return the line at which a module was built; None where that is not known."""
    return getattr(module, "__dict__", {}).get(_LINE)


def _found(path: str) -> Any:
    """Return a class of a framework; None where it is not imported, or not yet as a whole."""
    package, *names = path.split(".")
    found: Any = sys.modules.get(package)
    for name in names:
        found = vars(found).get(name) if found is not None else None
    return found


@contextmanager
def _replaced(
    owner: Any, name: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace a method while entered."""
    original = getattr(owner, name)
    setattr(owner, name, by(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _noting(original: Callable[..., None]) -> Callable[..., None]:
    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        line = _outside(self, sys._getframe(1))
        if line is not None:
            self.__dict__[_LINE] = line

    return initialised


def _outside(module: Any, frame: FrameType | None) -> Source | None:
    """Return the innermost line of the user's code outside of a module's own constructors."""
    while frame is not None:
        code = frame.f_code
        if is_user(code.co_filename) and frame.f_locals.get("self") is not module:
            return Source(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None
