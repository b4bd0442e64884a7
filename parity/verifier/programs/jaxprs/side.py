"""A Flax module, a callable pytree or a function of JAX's, prepared to be recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from parity.verifier.programs.built import built_of_nnx
from parity.verifier.programs.callables import (
    argument_names,
    attributes_of,
    described,
    is_a,
    kinds_of,
    numbers_of,
)
from parity.verifier.programs.held import is_module
from parity.verifier.programs.jaxprs.held import HeldByJax, Holding
from parity.verifier.programs.jaxprs.opened import closed, opened
from parity.verifier.programs.jaxprs.record import record_jax
from parity.verifier.programs.operation import Kind
from parity.verifier.programs.program import Program
from parity.verifier.programs.training import note_training
from vit_config import InputError


def record_side(
    function: Any,
    variables: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: int,
    name: str,
    dtype: str | None = None,
    closed_over: Holding | None = None,
) -> Program:
    """Record what a call computes; NNX models run in evaluation mode.

    Args:
        function: an NNX or Linen module, a callable pytree, or a function.
        variables: the variables of a Linen module.
        args: its positional arguments.
        kwargs: its named arguments.
        bound: how many of `args` were bound before the inputs were given.
        name: what the program is called.
        dtype: floating point type in which the program is traced; None for float64 throughout.
        closed_over: what `function` takes in front of `args`, as one dictionary of arrays by paths.
    """
    held = HeldByJax(function, args[:bound]) if closed_over is None else closed_over.held
    with held.evaluating() as layers:
        called = function if closed_over is None else _with_arrays(function, closed_over)
        program = _recorded(called, variables, args, kwargs, bound, name, dtype, held.labels())
    if layers is not None:
        note_training(program, layers)
    if is_module(function):
        program.built |= built_of_nnx(function)
    return program


_WithArrays = tuple[Callable[..., Any], list[tuple[Kind, str, Any]], Any]
"""A function, the trees in front of its arguments, and the callable whose signature names these."""


def _recorded(
    function: Any,
    variables: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    bound: int,
    name: str,
    dtype: str | None,
    labels: dict[int, str],
) -> Program:
    """Record a call as it stands; `labels` are the paths of arrays that are held, by their `id`."""
    call, trees, others = call_of(function, variables, args, kwargs, bound)
    program = record_jax(call, trees, name, dtype, labels)
    program.without_numbers += others
    return program


def call_of(
    function: Any, variables: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bound: int
) -> tuple[Callable[..., Any], list[tuple[Kind, str, Any]], dict[str, None]]:
    """Return a call as a pure function of trees of arrays, and these trees; see `record_side`.

    Returns:
        The function; for each of its arguments the kind of the leaves, the prefix of their paths and the
        tree; and a dictionary that gets what the function returns without numbers, once it has run.
    """
    trees: list[tuple[Kind, str, Any]]
    if isinstance(function, tuple):
        inner, trees, signature = function
    else:
        inner, state, signature = functional(function, variables)
        trees = [] if state is None else [("parameter", "", state)]
    before = len(trees)
    static: dict[int | str, Any] = {}
    names = argument_names(signature, len(args))
    for position, (kind, label, value) in enumerate(
        zip(kinds_of(args, bound), names, args, strict=True)
    ):
        dynamic, static[position] = _partition(opened(value))
        trees.append((kind, label, dynamic))
    for key, value in kwargs.items():
        dynamic, static[key] = _partition(opened(value))
        trees.append(("input", key, dynamic))

    others: dict[str, None] = {}

    def call(*values: Any) -> Any:
        own, given = values[:before], values[before:]
        positional = [closed(static[i](given[i])) for i in range(len(args))]
        named = {key: closed(static[key](given[len(args) + i])) for i, key in enumerate(kwargs)}
        result = inner(*own, *positional, **named)
        others.update(dict.fromkeys(without_numbers(result)))
        return only_numbers(result)

    return call, trees, others


def _with_arrays(function: Callable[..., Any], holding: Holding) -> _WithArrays:
    """Give a function the arrays that are held, by their kinds, in front of its arguments."""
    kinds: tuple[Kind, ...] = ("parameter", "constant")
    arrays = holding.arrays.items()
    trees: list[tuple[Kind, str, Any]] = [
        (kind, "", {path: each for path, (own, each) in arrays if own == kind}) for kind in kinds
    ]

    def call(parameters: Any, constants: Any, *args: Any, **kwargs: Any) -> Any:
        return function({**parameters, **constants}, *args, **kwargs)

    return call, trees, partial(function, None)


def functional(function: Any, variables: Any = None) -> tuple[Callable[..., Any], Any, Any]:
    """Return a function of what is held and of the arguments; what is held; and the callable whose
    signature names the arguments.

    A plain function holds nothing, and is given the arguments alone.
    """
    if is_a(function, "flax.linen"):
        return function.apply, variables, function.__call__
    if is_module(function):
        return *_nnx(function), function.__call__
    if _is_array_tree(function):
        held, rebuild = arrays_of(function)

        def call(arrays: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            return rebuild(arrays)(*args, **kwargs)

        return call, held, function.__call__
    return function, None, function


def arrays_of(tree: Any) -> tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]:
    """Return the arrays of a tree by their paths, and a function that rebuilds the tree with others."""
    import jax

    leaves, structure = jax.tree.flatten(tree)
    paths = [path_of(p) for p, _ in jax.tree_util.tree_leaves_with_path(tree)]

    def rebuild(arrays: dict[str, Any]) -> Any:
        filled = [arrays.get(path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
        return jax.tree.unflatten(structure, filled)

    return {p: leaf for p, leaf in zip(paths, leaves, strict=True) if _is_array(leaf)}, rebuild


def _nnx(model: Any) -> tuple[Callable[..., Any], Any]:
    from flax import nnx

    from parity.measure.traces.watch_jax import named_nnx

    graph, state = nnx.split(model)

    def call(state: Any, *args: Any, **kwargs: Any) -> Any:
        merged = nnx.merge(graph, state)
        merged.eval()
        with named_nnx(merged):
            return merged(*args, **kwargs)

    return call, state


def path_of(keys: Iterable[Any]) -> str:
    """Return the path of a leaf in a tree, given its keys."""
    return ".".join(map(_entry, keys))


def _entry(entry: Any) -> str:
    return str(next((getattr(entry, a) for a in ("key", "name", "idx") if hasattr(entry, a)), entry))


def _is_array(value: Any) -> bool:
    import jax

    if is_a(value, "torch"):
        raise InputError("a torch tensor was given to a JAX program; give numpy arrays")
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


def _is_array_tree(function: Any) -> bool:
    if inspect.isroutine(function) or isinstance(function, type):
        return False
    import jax

    leaves = jax.tree.leaves(function)
    return not any(leaf is function for leaf in leaves) and any(map(_is_array, leaves))


def _partition(value: Any) -> tuple[list[Any] | Any, Callable[[Any], Any]]:
    """Return the arrays of a tree, and a function that puts them back beside its flags and numbers."""
    import jax

    leaves, structure = jax.tree.flatten(value)
    if all(map(_is_array, leaves)):
        return value, lambda tree: tree
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]

    def rebuild(arrays: Any) -> Any:
        filled = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            filled[place] = array
        return jax.tree.unflatten(structure, filled)

    return [leaves[i] for i in places], rebuild


def only_numbers(result: Any) -> Any:
    """Drop from a program's result all that holds no numbers."""
    if all(_is_number(leaf) for _, leaf in _of_pytree(result)):
        return result
    leaves = _leaves(result)
    return {path_of(path): leaf for path, leaf in leaves if _is_number(leaf)}


def without_numbers(result: Any) -> list[str]:
    """Describe what `only_numbers` drops."""
    return [described(path_of(path), leaf) for path, leaf in _leaves(result) if not _is_number(leaf)]


def _leaves(result: Any, around: tuple[int, ...] = ()) -> list[tuple[Any, Any]]:
    """Return the leaves of a result with their paths; of an object that is no pytree the numbers among
    its attributes, or the object where it has none."""
    leaves: list[tuple[Any, Any]] = []
    for path, leaf in _of_pytree(result):
        inner = {} if _is_number(leaf) or id(leaf) in around else attributes_of(leaf)
        held = _leaves(inner, (*around, id(leaf))) if inner else []
        numbers = [((*path, *rest), each) for rest, each in held if _is_number(each)]
        leaves += numbers or [(path, leaf)]
    return leaves


def _of_pytree(result: Any) -> list[tuple[Any, Any]]:
    import jax

    # generators are no trees, and JAX warns of them unless it is told so
    return jax.tree_util.tree_leaves_with_path(result, is_leaf=lambda each: isinstance(each, Iterator))


def _is_number(value: Any) -> bool:
    import jax

    return isinstance(value, jax.Array) or numbers_of(value) is not None
