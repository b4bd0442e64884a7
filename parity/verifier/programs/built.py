"""The line of the user's code that built a module or an optimiser, where its epsilon is given."""

from __future__ import annotations

import builtins
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from parity.verifier.programs import transformations
from parity.verifier.programs.operation import Source
from parity.verifier.programs.program import Program

_LINE = "_built_at"
"""Attribute of a module that holds its line, so that copies of the module have it, too."""
_LINES: dict[int, tuple[weakref.ref[Any], Source]] = {}
"""The lines of NNX's modules, whose attributes are part of what they are, by `id`, while they live."""


@contextmanager
def watched() -> Iterator[None]:
    """Note, while entered, the line at which each module of torch and NNX, each layer of Keras, each
    optimiser of torch and each transformation and schedule of optax is built.

    Frameworks that are imported meanwhile are watched as well.
    """
    with ExitStack() as stack:
        left = dict(_WATCHED)
        imports = builtins.__import__

        def watch() -> None:
            for path in [path for path in left if _imported(path) is not None]:
                for owner, name, by in left.pop(path)(_imported(path)):
                    stack.enter_context(_replaced(owner, name, by))

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

    made = _imported("keras.layers.Layer")
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


def lines_of_nnx(model: Any) -> dict[str, Source]:
    """Return the lines at which the modules of an NNX model were built, by their paths."""
    from flax import nnx

    paths = {".".join(map(str, path)): id(module) for path, module in nnx.iter_modules(model)}
    return {path: _LINES[each][1] for path, each in paths.items() if each in _LINES}


def line_of(module: Any) -> Source | None:
    """Return the line at which a module was built; None where that is not known."""
    return getattr(module, "__dict__", {}).get(_LINE)


def _imported(path: str) -> Any:
    """Return what a framework has under a name; None where it is not imported, or not yet as a whole."""
    package, *names = path.split(".")
    value: Any = sys.modules.get(package)
    for name in names:
        value = vars(value).get(name) if value is not None else None
    return value


@contextmanager
def _replaced(
    owner: Any, name: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace a method, its own or an inherited one, while entered."""
    own = vars(owner).get(name)
    setattr(owner, name, by(getattr(owner, name)))
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def _noting(original: Callable[..., None]) -> Callable[..., None]:
    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        line = transformations.line_outside(sys._getframe(1), self)
        if line is not None:
            self.__dict__[_LINE] = line

    return initialised


def _noting_made(original: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        module = original(*args, **kwargs)
        line = transformations.line_outside(sys._getframe(1))
        if line is not None:
            key = id(module)
            _LINES[key] = weakref.ref(module, lambda _: _LINES.pop(key, None)), line
        return module

    return made


_Replaced = tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
"""An owner, the name of a function of its, and what makes the one in its place."""


def _of_class(owner: Any) -> list[_Replaced]:
    return [(owner, "__init__", _noting)]


def _of_nnx(owner: Any) -> list[_Replaced]:
    return [(type(owner), "__call__", _noting_made)]  # the metaclass: no initialiser is common to all


def _of_optax(_: Any) -> list[_Replaced]:
    optax = sys.modules["optax"]
    return [
        (optax.GradientTransformation, "__new__", transformations.noting),
        (optax.MultiSteps, "__init__", transformations.noting_methods),
        *((*each, transformations.noting_result) for each in transformations.schedules(optax)),
    ]


_WATCHED: dict[str, Callable[[Any], list[_Replaced]]] = {
    "torch.nn.Module": _of_class,
    "torch.optim.Optimizer": _of_class,
    "keras.layers.Layer": _of_class,
    "flax.nnx.Module": _of_nnx,
    "optax.__all__": _of_optax,  # the last that its import makes
}
"""What is watched as soon as a name of a framework is there."""
