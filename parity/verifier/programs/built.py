"""The line of the user's code that built a module or an optimiser, where its epsilon is given."""

from __future__ import annotations

import builtins
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from parity.verifier.programs import transformations
from parity.verifier.programs.operation import BUILT, Construction, Source
from parity.verifier.programs.program import Program
from parity.verifier.programs.sources import is_user

_BUILT = "_built_at"
"""Attribute of a module that holds its construction, so that copies of the module have it, too."""
_BUILT_OF_NNX: dict[int, tuple[weakref.ref[Any], Construction]] = {}
"""Constructions of NNX's modules, whose attributes are part of what they are, by the `id` of each, while
it lives."""


@contextmanager
def watch_building() -> Iterator[None]:
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
def layers_called() -> Iterator[dict[str, Construction]]:
    """Yield where Keras's layers were built, by their names; filled, while entered, with
    those that are called."""
    built: dict[str, Construction] = {}

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            construction = construction_of(self)
            if construction is not None:
                built[self.name] = construction
            return original(self, *args, **kwargs)

        return called

    made = _imported("keras.layers.Layer")
    with ExitStack() as stack:
        if made is not None:
            stack.enter_context(_replaced(made, "__call__", noting))
        yield built


def add_layers(program: Program, built: dict[str, Construction]) -> None:
    """Add to a program where the layers that it names were built."""
    for path in {op.module for op in program.operations} if built else ():
        construction = built.get(path.rpartition(".")[2])
        if construction is not None:
            program.built[path] = construction


def built_of_nnx(model: Any) -> dict[str, Construction]:
    """Return where the modules of an NNX model were built, by their paths."""
    from flax import nnx

    paths = {".".join(map(str, path)): id(module) for path, module in nnx.iter_modules(model)}
    return {path: _BUILT_OF_NNX[each][1] for path, each in paths.items() if each in _BUILT_OF_NNX}


def construction_of_nnx(module: Any) -> Construction | None:
    """Return where a module of NNX was built; None where that is not known."""
    return _BUILT_OF_NNX[id(module)][1] if id(module) in _BUILT_OF_NNX else None


def construction_of(module: Any) -> Construction | None:
    """Return where a module was built; None where that is not known."""
    return getattr(module, "__dict__", {}).get(_BUILT)


def _construction(module: Any, line: Source) -> Construction:
    file = getattr(sys.modules.get(type(module).__module__), "__file__", None)
    return Construction(replace(line, function=BUILT), ready_made=file is not None and not is_user(file))


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
            self.__dict__[_BUILT] = _construction(self, line)

    return initialised


def _noting_made(original: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        module = original(*args, **kwargs)
        line = transformations.line_outside(sys._getframe(1))
        if line is not None:
            key = id(module)
            alive = weakref.ref(module, lambda _: _BUILT_OF_NNX.pop(key, None))
            _BUILT_OF_NNX[key] = alive, _construction(module, line)
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
