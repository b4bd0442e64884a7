"""Models that come as something else: a method of a module, or a function that closes over one."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def as_module(function: Any) -> Any:
    """Turn a module's method into a module whose call runs the method; return all else unchanged.

    A module knows its parameters, which run in float64 with everything else. For a method that calling
    the module does not run, the result is a view of the module, of a class of its own: it has the
    module's parameters, and calling it within the method does what calling the module does.
    """
    if not inspect.ismethod(function):
        return function
    owner, name = function.__self__, function.__name__
    entry = _entry(owner)
    if entry is None or name in (entry, "__call__"):
        return function if entry is None else owner
    kind, inner = type(owner), function.__func__
    inside = False

    @functools.wraps(inner)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return getattr(kind, entry)(self, *args, **kwargs)
        inside = True
        try:
            return inner(self, *args, **kwargs)
        finally:
            inside = False

    metaclass: Any = type(kind)
    made = metaclass(kind.__name__, (kind,), {entry: call, "__module__": kind.__module__})
    view = object.__new__(made)
    vars(view).update(vars(owner))
    return view


def closed_over(function: Any) -> list[str]:
    """Return the names of the modules and torch tensors that a function uses and is not given."""
    try:
        used = inspect.getclosurevars(inspect.unwrap(function))
    except (TypeError, ValueError):
        return []
    values = {**used.globals, **used.nonlocals}
    return [n for n, each in values.items() if _entry(each) or type(each).__name__ == "Tensor"]


def _entry(value: Any) -> str | None:
    """Name the method that calling a module runs; None for all but modules of torch and of NNX."""
    for base in type(value).__mro__:
        if (base.__module__, base.__name__) == ("torch.nn.modules.module", "Module"):
            return "forward"
        if base.__module__.startswith("flax.nnx") and base.__name__ == "Module":
            return "__call__"
    return None
