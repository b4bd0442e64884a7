"""A Flax model as a program in which every array at the edge of a module is marked.

Loops, rematerialisation and compiled functions trace their bodies apart from the rest, some more than
once, and what is seen there cannot be carried out of them. So a mark is an equation of the program: the
body that runs has it, and where a loop is played step by step it is met once a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from parity.measure.site import Where
from parity.measure.versions.of_jax import read_scan, say_how_programs_are_read

See = Callable[[Where, Any], Any]
"""Is shown an array and where it is; what it returns takes the array's place."""

_site = core.Primitive("parity_site")
_site.def_impl(lambda x, **_: x)
_site.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_site, lambda _, x, **__: [x])
ad.primitive_jvps[_site] = lambda primals, tangents, **where: (mark(primals[0], **where), tangents[0])


def _batched(arrays: Sequence[Any], axes: Sequence[int], **where: Any) -> tuple[Any, int]:
    """A module that is mapped over an axis has this axis in front at its edges."""
    return mark(jax.numpy.moveaxis(arrays[0], axes[0], 0), **where), 0


batching.primitive_batchers[_site] = _batched


def mark(x: jax.Array, *, path: str, port: str, call: int) -> jax.Array:
    """The same array, marked in the program that is traced."""
    return _site.bind(x, path=path, port=port, call=call)


class Marks:
    """Marks whatever a watched model shows; see `parity.measure.traces.watching.Tap`."""

    def __init__(self) -> None:
        self.modules: list[tuple[str, Any]] = []
        self._calls: Counter[str] = Counter()

    def begin(self, path: str, module: Any) -> int:
        """A call of a module begins."""
        self.modules.append((path, module))
        self._calls[path] += 1
        return self._calls[path] - 1

    def tensor(self, where: Where, value: jax.Array) -> jax.Array:
        """Mark it."""
        return mark(value, path=where.path, port=where.port, call=where.call)

    def end(self, path: str) -> None:
        """Nothing is left to be done."""


def play(program: Any, inputs: Sequence[Any], see: See) -> list[Any]:
    """Run a closed jaxpr, showing what is marked in it in the order in which it runs.

    What holds no mark runs as it is. Inside of branches, loops of unknown length and functions with a
    derivative of their own marks are not shown.
    """
    say_how_programs_are_read()
    return _Player(see).run(program.jaxpr, program.consts, inputs)


class _Player:
    def __init__(self, see: See) -> None:
        self._see = see
        self._met: Counter[tuple[str, str, int]] = Counter()
        self._calls: dict[tuple[str, int, int], int] = {}
        self._numbers: Counter[str] = Counter()

    def run(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))
        for eqn in jaxpr.eqns:
            operands = [values[x] if isinstance(x, core.Var) else x.val for x in eqn.invars]
            values.update(zip(eqn.outvars, self.equation(eqn, operands), strict=True))
        return [values[x] if isinstance(x, core.Var) else x.val for x in jaxpr.outvars]

    def inside(self, inner: Any, operands: Sequence[Any]) -> list[Any]:
        """Run a jaxpr, closed or open."""
        return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)

    def equation(self, eqn: Any, operands: list[Any]) -> list[Any]:
        if eqn.primitive is _site:
            return [self._see(self.where(**eqn.params), operands[0])]
        if eqn.primitive.name == "scan" and _is_marked(eqn):
            return self.scan(eqn.params, operands)
        inner = eqn.params.get("jaxpr")
        if inner is not None and eqn.primitive.name in _CALLS and _is_marked(eqn):
            return self.inside(inner, operands)
        result = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
        return list(result) if eqn.primitive.multiple_results else [result]

    def scan(self, params: dict[str, Any], operands: list[Any]) -> list[Any]:
        """Step by step."""
        scan = read_scan(params)
        fixed, carried, body = scan.constants, scan.carried, scan.body
        constants, carry = operands[:fixed], operands[fixed : fixed + carried]
        rows, steps = operands[fixed + carried :], range(scan.length)
        put_out: dict[int, list[Any]] = {}
        for t in reversed(steps) if scan.is_reverse else steps:
            results = self.inside(body, [*constants, *carry, *(each[t] for each in rows)])
            carry, put_out[t] = results[:carried], results[carried:]
        stacked = [
            jax.numpy.stack([put_out[t][k] for t in steps])
            if steps
            else jax.numpy.zeros((0, *aval.shape), aval.dtype)
            for k, aval in enumerate(body.out_avals[carried:])
        ]
        return [*carry, *stacked]

    def where(self, path: str, port: str, call: int) -> Where:
        """Calls are numbered as they run: those of a loop's body were traced once, or twice for one."""
        key = path, port, call
        self._met[key] += 1
        running = path, call, self._met[key]
        if running not in self._calls:
            self._calls[running] = self._numbers[path]
            self._numbers[path] += 1
        return Where(path, port, self._calls[running])


_CALLS = frozenset(["jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"])


def _is_marked(eqn: Any) -> bool:
    return any(
        each.primitive is _site or _is_marked(each)
        for inner in _programs(eqn.params)
        for each in inner.eqns
    )


def _programs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
            yield inner
