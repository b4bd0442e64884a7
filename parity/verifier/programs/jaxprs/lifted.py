"""Arrays that a JAX function closes over, as arguments of it, so that it can be differentiated by them.

The function is traced, and its jaxpr evaluated with other values in place of these arrays. Every
equation keeps its line and its stack of names. A value that takes the place of one in a smaller type
stays in float64, as all arguments do: what reads it is run in float64, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parity.measure.versions.of_jax import read_scan
from parity.verifier.programs.jaxprs.equations import bound, jaxprs_in, written_by_jax
from parity.verifier.programs.jaxprs.held import Holding
from parity.verifier.programs.jaxprs.values import leaf_value, literal, rounding_of, widened

INLINE = frozenset(["jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"])
"""Primitives that call a jaxpr and change nothing about its numbers."""


class Lifted:
    """A function of a tree, evaluated with other arrays in place of those that it holds."""

    def __init__(self, function: Callable[[Any], Any], tree: Any, holding: Holding) -> None:
        """Trace the function at a tree of arrays; `holding` says what it may close over."""
        import jax

        self._closed, shapes = jax.make_jaxpr(function, return_shape=True)(tree)
        self._structure = jax.tree.structure(shapes)
        self._paths = _paths(self._closed, holding)
        without_rule = {self._paths.get(each) for each in _outside_of_rules(self._closed)}
        self.paths = [each for each in dict.fromkeys(self._paths.values()) if each not in without_rule]
        """Paths of the arrays that it closes over and that can be replaced, in the order of use."""

    def __call__(self, arrays: Mapping[str, Any], tree: Any) -> Any:
        """Return what the function returns with these arrays, by their paths, in place of its own."""
        import jax

        values = {each: arrays[path] for each, path in self._paths.items() if path in arrays}
        outputs = _Evaluation(values).closed(self._closed, jax.tree.leaves(tree))
        return jax.tree.unflatten(self._structure, outputs)


def _paths(closed: Any, holding: Holding) -> dict[int, str]:
    """Return the paths of the constants of a jaxpr that a function holds, by their `id`.

    JAX makes an array of its own of each array of NumPy. It is known by its numbers, unless the jaxpr
    has more arrays of these numbers than the several that are held.
    """
    paths: dict[int, str] = {}
    copies: dict[Any, list[int]] = {}
    for number, each in {id(each): each for each in _constants(closed)}.items():
        if number in holding.paths:
            paths[number] = holding.paths[number]
        elif np.size(each) > 1:
            copies.setdefault(holding.key(each), []).append(number)
    for key, numbers in copies.items():
        known = [each for each in holding.by_numbers.get(key, ()) if each not in paths.values()]
        if len(known) == 1:
            paths.update(dict.fromkeys(numbers, known[0]))
        elif len(known) >= len(numbers):
            paths.update(zip(numbers, known, strict=False))
    return paths


def _constants(closed: Any) -> Iterator[Any]:
    """Yield the floating point arrays that a jaxpr and the jaxprs inside of it hold."""
    import jax
    from jax.core import Tracer

    jaxpr = getattr(closed, "jaxpr", closed)
    literals = [each.val for eqn in jaxpr.eqns for each in eqn.invars if hasattr(each, "val")]
    for each in (*getattr(closed, "consts", ()), *literals):
        concrete = hasattr(each, "dtype") and not isinstance(each, Tracer)
        if concrete and jax.numpy.issubdtype(each.dtype, jax.numpy.floating):
            yield each
    for eqn in jaxpr.eqns:
        for inner in jaxprs_in(eqn.params):
            yield from _constants(inner)


def _outside_of_rules(closed: Any) -> Iterator[int]:
    """Yield the `id` of the constants that a function with a rule of its own for derivatives closes
    over: the rule has no derivative by them."""
    jaxpr = getattr(closed, "jaxpr", closed)
    held = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=False))
    for eqn in jaxpr.eqns:
        if eqn.primitive.name.startswith("custom_"):
            for each in eqn.invars[: eqn.params.get("num_consts", 0)]:
                yield id(each.val if hasattr(each, "val") else held.get(each))
            inside = [each for inner in jaxprs_in(eqn.params) for each in _constants(inner)]
            yield from map(id, inside)
        for inner in jaxprs_in(eqn.params):
            yield from _outside_of_rules(inner)


class _Evaluation:
    """A run of a jaxpr on other constants."""

    def __init__(self, values: Mapping[int, Any]) -> None:
        self._values = values
        self._line: Any = None
        """The line of the call of a function of JAX's, which was traced where it was first called."""

    def closed(self, closed: Any, operands: Sequence[Any]) -> list[Any]:
        """Run a jaxpr, closed or open."""
        from jax.extend import source_info_util

        jaxpr = getattr(closed, "jaxpr", closed)
        env = dict(zip(jaxpr.constvars, map(self._own, getattr(closed, "consts", ())), strict=True))
        env.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Any:
            return self._own(atom.val) if hasattr(atom, "val") else env[atom]

        for eqn in jaxpr.eqns:
            names = source_info_util.current_name_stack() + eqn.source_info.name_stack
            line = self._line or eqn.source_info.traceback
            with source_info_util.user_context(line, name_stack=names), eqn.ctx.manager:
                results = self._equation(eqn, [read(each) for each in eqn.invars])
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(each) for each in jaxpr.outvars]

    def _own(self, value: Any) -> Any:
        return self._values.get(id(value), value)

    def _equation(self, eqn: Any, operands: list[Any]) -> list[Any]:
        name, params = eqn.primitive.name, eqn.params
        wide = any(_is_wider(each, atom) for each, atom in zip(operands, eqn.invars, strict=True))
        inside = [each for inner in jaxprs_in(params) for each in _constants(inner)]
        if not wide and not any(id(each) in self._values for each in inside):
            return _bind(eqn, operands)
        if name in INLINE:
            (inner,) = jaxprs_in(params)
            outer = self._line
            self._line = outer or (eqn.source_info.traceback if written_by_jax(inner) else None)
            results = self.closed(inner, operands)
            self._line = outer
            return results
        if name == "scan":
            return self._scan(params, operands)
        if name == "cond":
            return self._cond(params, operands)
        if next(jaxprs_in(params), None) is not None or name == "custom_lin":
            return _bind(
                eqn, [_as(each, atom.aval) for each, atom in zip(operands, eqn.invars, strict=True)]
            )
        results = bound(
            eqn.primitive, {k: widened(v) for k, v in params.items()}, [_wide(each) for each in operands]
        )
        return list(results) if eqn.primitive.multiple_results else [results]

    def _scan(self, params: Mapping[str, Any], operands: Sequence[Any]) -> list[Any]:
        import jax

        scan = read_scan(params)
        operands = [_wide(each) for each in operands]
        constants, rest = operands[: scan.constants], operands[scan.constants :]
        carry, rows = rest[: scan.carried], rest[scan.carried :]

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            results = self.closed(scan.body, [*constants, *carry, *row])
            kept = [_as(new, old) for new, old in zip(results, carry, strict=False)]
            return kept, results[scan.carried :]

        last, stacked = jax.lax.scan(step, carry, rows, scan.length, scan.is_reverse)
        return [*last, *stacked]

    def _cond(self, params: Mapping[str, Any], operands: Sequence[Any]) -> list[Any]:
        import jax

        def branch(inner: Any) -> Callable[..., list[Any]]:
            return lambda *given: [_wide(each) for each in self.closed(inner, given)]

        return jax.lax.switch(operands[0], [*map(branch, params["branches"])], *map(_wide, operands[1:]))


def _bind(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    results = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return list(results) if eqn.primitive.multiple_results else [results]


def _is_wider(value: Any, atom: Any) -> bool:
    return rounding_of(getattr(value, "dtype", "")) < rounding_of(getattr(atom.aval, "dtype", ""))


def _wide(value: Any) -> Any:
    """Return a value in float64, if it is in a smaller floating point type."""
    import jax

    if not isinstance(value, jax.Array):
        value = leaf_value(value) if np.ndim(value) else np.asarray(literal(value))
    return value.astype(np.float64) if rounding_of(value.dtype) else value


def _as(value: Any, like: Any) -> Any:
    """Return a value in the type of another."""
    return value if value.dtype == like.dtype else value.astype(like.dtype)
