"""Watching Flax models: NNX by wrapping the calls of its classes, Linen by its interceptors.

Values leave compiled code through callbacks that know where each is seen, so a model can be watched
inside any `jax.jit` and `jax.grad`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

from parity.measure.site import Where
from parity.measure.traces.watching import Tap, visit_arrays, visit_call


def is_array(value: Any) -> bool:
    """Return whether a value is an array of JAX, traced or not; keys of random streams do not count."""
    return isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended)


@contextmanager
def watch(model: nnx.Module | linen.Module, tap: Tap) -> Iterator[None]:
    """Show `tap` every array that enters or leaves `model` and each module below it, as they are traced.

    Compiled functions would not be traced again, so JAX's caches are cleared, before and after.
    """
    jax.clear_caches()
    try:
        with _watch_linen(model, tap) if isinstance(model, linen.Module) else watch_nnx(model, tap):
            yield
    finally:
        jax.clear_caches()


def watched(call: Callable[..., Any], path: str, number: int, tap: Tap, args: Any, kwargs: Any) -> Any:
    """Call a module's method with every array shown to the tap."""
    see = lambda port, x: tap.tensor(Where(path, port, number), x)  # noqa: E731
    args, kwargs = visit_call(args, kwargs, is_array, see)
    seen = visit_arrays(call(*args, **kwargs), "out", is_array, see)
    tap.end(path)
    return seen


@contextmanager
def watch_nnx(model: nnx.Module, tap: Tap) -> Iterator[None]:
    """Watch an NNX model that was never called: no caches have to be cleared."""

    def around(path: str, module: nnx.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return watched(call, path, tap.begin(path, module), tap, args, kwargs)

    with _wrapped_nnx(model, around):
        yield


@contextmanager
def named_nnx(model: nnx.Module) -> Iterator[None]:
    """Name operations by the path of the module that traces them, as Linen does (`jax.named_scope`)."""
    running = [""]

    def around(path: str, module: nnx.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        outer = f"{running[-1]}."
        running.append(path)
        try:
            with jax.named_scope(path.removeprefix(outer)) if path else nullcontext():
                return call(*args, **kwargs)
        finally:
            running.pop()

    with _wrapped_nnx(model, around):
        yield


_Around = Callable[[str, nnx.Module, Callable[..., Any], Any, Any], Any]
"""Function that calls a module's method, given the module's path, the module, method and arguments."""


@contextmanager
def _wrapped_nnx(model: nnx.Module, around: _Around) -> Iterator[None]:
    """Call `around` in place of each module's ``__call__``, which is wrapped in each class of the
    tree: NNX has no hooks.

    The running model is often another object than the one given - merged from its parameters inside
    a compiled function - so names are looked up at each call of an instance of the root's class.
    """
    own = {id(module): _dotted(path) for path, module in nnx.iter_modules(model)}
    names: dict[int, str] = {}
    classes = {type(module) for _, module in nnx.iter_modules(model) if callable(module)}
    own_calls = {kind: vars(kind).get("__call__") for kind in classes}

    def wrap(kind: type) -> Callable[..., Any]:
        original: Any = kind.__call__  # found through the bases, before any of them is wrapped

        def call(self: nnx.Module, *args: Any, **kwargs: Any) -> Any:
            if kind is not next(base for base in type(self).__mro__ if base in own_calls):
                return original(self, *args, **kwargs)  # a base's method, called by its subclass
            root = type(self) is type(model) and id(self) not in names
            if root:
                names.clear()
                names.update((id(m), _dotted(path)) for path, m in nnx.iter_modules(self))
            path = names.get(id(self), None if names else own.get(id(self)))
            if path is None:
                return original(self, *args, **kwargs)
            try:
                return around(path, self, functools.partial(original, self), args, kwargs)
            finally:
                if root:
                    names.clear()  # the next object at these addresses is another one

        return call

    wrapped = {kind: wrap(kind) for kind in classes}
    for kind, call in wrapped.items():
        kind.__call__ = call
    try:
        yield
    finally:
        for kind, original in own_calls.items():
            if original is None:
                del kind.__call__
            else:
                kind.__call__ = original


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


@contextmanager
def _watch_linen(model: linen.Module, tap: Tap) -> Iterator[None]:
    """Watch all calls below an instance of the root's class that is no other module's part."""
    running: list[linen.Module] = []

    def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        root = not module.path and type(module) is type(model)
        base = bool(running) and running[-1] is module  # a base's method, called by its subclass
        if base or not (running or root):
            return call(*args, **kwargs)
        running.append(module)
        try:
            if context.method_name != "__call__":
                return call(*args, **kwargs)
            path = _dotted(module.path)
            return watched(call, path, tap.begin(path, module), tap, args, kwargs)
        finally:
            running.pop()

    with linen.intercept_methods(intercept):
        yield
