"""Modules and arrays that a function of JAX's uses without being given them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from parity.verifier.programs.built import construction_of_nnx
from parity.verifier.programs.callables import is_a, leaves_of
from parity.verifier.programs.held import held_by, is_module
from parity.verifier.programs.jaxprs.values import leaf_value
from parity.verifier.programs.operation import Kind
from parity.verifier.programs.training import Training, training_of

MODES = ("deterministic", "use_running_average")
"""Attributes that tell a layer of NNX whether it trains."""


class HeldByJax:
    """The Flax modules and the arrays that a function holds."""

    def __init__(self, function: Any, given: tuple[Any, ...] = ()) -> None:
        """Look for them; `given` are values that are bound to it, of which only the modules count."""
        values = list(held_by(function))
        self.modules = {n: each for n, each in values if is_module(each) and is_a(each, "flax")}
        self.arrays = {
            id(array): (_name(each) or name, array)
            for name, each in values
            if not is_module(each) and (array := _array(each)) is not None
        }
        self.fixed = {id(_array(each)) for _, each in values if not is_module(each) and _is_fixed(each)}
        """The `id` of the arrays that are trained by nobody, by what their variables say."""
        bound = [each for each in leaves_of(given) if is_module(each) and is_a(each, "flax")]
        self._all = [*self.modules.values(), *bound]

    def labels(self) -> dict[int, str]:
        """Return the paths of arrays by their `id`, as a trace meets them."""
        labels = {i: name for i, (name, _) in self.arrays.items() if name}
        for name, module in self.modules.items():
            for path, leaf in _state(module):
                labels[id(leaf)] = self._path(name, path)
        return labels

    def _path(self, name: str, path: list[str]) -> str:
        return ".".join([*([name] if len(self.modules) > 1 else []), *path])

    @contextmanager
    def evaluating(self) -> Iterator[list[Training] | None]:
        """Put the modules in evaluation mode while entered; yield the layers that compute something else
        in the mode before, or None if no mode changed."""
        if not self._all:
            yield None
            return
        from flax import nnx

        inner = {id(e): (path, e) for each in self._all for path, e in nnx.iter_modules(each)}
        before = [
            (each, mode, getattr(each, mode))
            for _, each in inner.values()
            for mode in MODES
            if hasattr(each, mode)
        ]
        for module in self._all:
            module.eval()
        try:
            other = [each for each, mode, value in before if getattr(each, mode) != value]
            layers = [layer for each in other for layer in _training(each, inner[id(each)][0])]
            yield layers if other else None
        finally:
            for each, mode, value in before:
                setattr(each, mode, value)


class Holding:
    """The arrays by which a function that holds them is differentiated, with paths of their own."""

    def __init__(self, held: HeldByJax, given: Any = ()) -> None:
        """Name all that is held but for the leaves of a tree, which the function is given."""
        import jax

        self.held = held
        self._given = {id(each) for each in jax.tree.leaves(given)}
        self.arrays: dict[str, tuple[Kind, Any]] = {}
        """Kind and array by path. Arrays of NumPy are constants: a program may well have no gradients by
        its tables."""
        self.paths: dict[int, str] = {}
        self.by_numbers: dict[Any, list[str]] = {}
        """Paths of the arrays that have the same numbers, by their key."""
        for number, (name, array) in held.arrays.items():
            if number not in held.fixed:
                self._add(name or "held", array)
        for name, module in held.modules.items():
            for path, array in _state(module, parameters=True):
                self._add(held._path(name, path), array)

    def _add(self, name: str, array: Any) -> None:
        from jax import numpy as jnp

        if id(array) in self._given or not jnp.issubdtype(array.dtype, jnp.floating):
            return
        path, number = name, 1
        while path in self.arrays:
            number += 1
            path = f"{name}.{number}"
        kind: Kind = "constant" if isinstance(array, (np.ndarray, np.generic)) else "parameter"
        self.arrays[path] = kind, array
        self.paths[id(array)] = path
        self.by_numbers.setdefault(self.key(array), []).append(path)

    @staticmethod
    def key(array: Any) -> tuple[tuple[int, ...], bytes]:
        """Return what arrays of the same numbers have in common, whatever their types."""
        numbers = np.asarray(leaf_value(array), np.float32)
        return numbers.shape, numbers.tobytes()


def _training(module: Any, path: Sequence[Any]) -> list[Training]:
    construction = construction_of_nnx(module)
    line = construction.source if construction else None
    return training_of(".".join(map(str, path)), module, line)


def _array(value: Any) -> Any:
    """Return an array, or the array of a variable of NNX or Keras; None for arrays of another kind."""
    import jax

    if is_a(value, "flax.nnx"):
        value = value[...]
    elif is_a(value, "keras"):
        value = getattr(value, "value", None)  # which a symbol lacks
    return value if isinstance(value, (jax.Array, np.ndarray, np.generic)) else None


def _is_fixed(value: Any) -> bool:
    if is_a(value, "flax.nnx"):
        from flax import nnx

        return not isinstance(value, nnx.Param)
    return getattr(value, "trainable", True) is False


def _name(value: Any) -> str:
    """Return the name that a variable of Keras has by itself; empty for all else."""
    return str(getattr(value, "path", "")).replace("/", ".") if is_a(value, "keras") else ""


def _state(module: Any, *, parameters: bool = False) -> Iterator[tuple[list[str], Any]]:
    """Yield the arrays of a module, or of its parameters, with their paths."""
    import jax
    from flax import nnx

    kinds = (nnx.Param,) if parameters else ()
    for path, leaf in jax.tree_util.tree_leaves_with_path(nnx.state(module, *kinds)):
        keys = [str(next(getattr(e, a) for a in ("key", "name", "idx") if hasattr(e, a))) for e in path]
        yield keys[:-1] if keys[-1:] == ["value"] else keys, leaf
