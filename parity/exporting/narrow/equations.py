"""A function of JAX in a small type: run as the type computes it, and written with casts."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from parity.exporting.narrow.graph import EXACT, Graph, Step, numbered

_PLUMBING = ("rules.py", "linear.py")
"""Files of the twin that compute for others: the line that called them says more."""


class Held(NamedTuple):
    """A value that no equation makes."""

    value: Any


class Made(NamedTuple):
    """A value that an equation makes: its number, and which of its results."""

    equation: int
    result: int


class Equation(NamedTuple):
    """One equation of a program without calls, and what it reads."""

    eqn: Any
    lines: tuple[tuple[str, int], ...]
    """The lines of this project behind it, the innermost first."""
    reads: tuple[Held | Made | int, ...]
    """`int`: an input of the program."""


def flat(closed: ClosedJaxpr) -> tuple[list[Equation], list[Any]]:
    """Return the equations of a program with those that it calls in their place, and its outputs."""
    equations: list[Equation] = []

    def walk(jaxpr: Jaxpr, consts: Any, given: list[Any], lines: Any = ()) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(Held, consts), strict=True))
        known.update(zip(jaxpr.invars, given, strict=True))

        def read(var: Any) -> Any:
            if not isinstance(var, Literal):
                return known[var]
            kind: Any = var.aval
            return Held(jnp.asarray(var.val, kind.dtype))

        for eqn in jaxpr.eqns:
            reads = [read(each) for each in eqn.invars]
            behind = (*_frames(eqn), *lines)
            inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
            if eqn.primitive.name not in ("scan", "while", "cond") and inner is not None:
                made = walk(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), reads, behind)
            else:
                made = [Made(len(equations), k) for k in range(len(eqn.outvars))]
                equations.append(Equation(eqn, behind, tuple(reads)))
            known.update(zip(eqn.outvars, made, strict=True))
        return [read(each) for each in jaxpr.outvars]

    outputs = walk(closed.jaxpr, closed.consts, list(range(len(closed.jaxpr.invars))))
    return equations, outputs


def is_small(equation: Equation, dtype: Any) -> bool:
    """Return whether an equation's result is of a type."""
    return any(each.aval.dtype == dtype for each in equation.eqn.outvars)


class JaxGraph(Graph):
    """The function that the JAX twin is exported as."""

    def __init__(self, program: Callable[..., Any], dtype: str, images: np.ndarray) -> None:
        self._dtype = jnp.dtype(dtype)
        closed, shape = jax.make_jaxpr(program, return_shape=True)(images)
        self._equations, outputs = flat(closed)
        self._images = jnp.asarray(images)
        self._names = list(shape)  # in the order of a tree's leaves
        steps = []
        for equation in self._equations:
            line, text = _line(equation.lines)
            steps.append(
                Step(
                    name=f"{line}.{equation.eqn.primitive.name}",
                    line=line,
                    text=text,
                    inputs=tuple(
                        dict.fromkeys(e.equation for e in equation.reads if isinstance(e, Made))
                    ),
                    weights=sum(e.value.size for e in equation.reads if isinstance(e, Held)),
                    shape=tuple(equation.eqn.outvars[0].aval.shape),
                    small=is_small(equation, self._dtype),
                    exact=equation.eqn.primitive.name in EXACT,
                )
            )
        names = numbered(each.name for each in steps)
        self.steps = [Step(**{**vars(s), "name": n}) for s, n in zip(steps, names, strict=True)]
        self.outputs = tuple(each.equation for each in outputs)
        self.prepare(dtype, len(images))

    def called(self, index: int) -> str:
        """Return the name of what is called."""
        return self._equations[index].eqn.primitive.name

    def _compute(self, index: int, known: dict[int, Any], *, narrow: bool) -> Any:
        equation = self._equations[index]

        def value(each: Any) -> Any:
            if isinstance(each, Made):
                return known[each.equation][each.result]
            return self._wide(each.value) if isinstance(each, Held) else self._images

        made = _bound(equation.eqn, [value(each) for each in equation.reads], self._dtype, wide=True)
        return jax.block_until_ready(made)

    def _wide(self, value: Any) -> Any:
        return value.astype(jnp.float32) if value.dtype == self._dtype else value

    def _rounded(self, value: Any) -> Any:
        return [each.astype(self._dtype).astype(jnp.float32) for each in value]

    def _arrays(self, value: Any) -> list[np.ndarray]:
        return [np.asarray(each) for each in value]


def kept(program: Callable[..., Any], wide: Mapping[int, str], dtype: str) -> Callable[..., Any]:
    """Return a function of images with casts put into it.

    Args:
        wide: see `parity.exporting.narrow.search.Kept`.
    """
    small = jnp.dtype(dtype)

    def narrowed(images: jax.Array) -> Any:
        closed, shape = jax.make_jaxpr(program, return_shape=True)(images)
        with jax.enable_x64(True):  # equations have their types; PIL's integers are float64
            results = _with_casts(closed, wide, small, images)
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return narrowed


def _with_casts(closed: ClosedJaxpr, wide: Mapping[int, str], small: Any, images: Any) -> list[Any]:
    """Run a program with some results in float32, and return its outputs."""
    equations, outputs = flat(closed)
    mine = [i for i, each in enumerate(equations) if is_small(each, small)]
    of_float32 = {mine[i] for i in wide}
    names = [equations[mine[i]].eqn.primitive.name for i in wide]
    assert names == [*wide.values()]  # the program that was searched
    known: dict[int, Any] = {}

    def value(each: Any) -> Any:
        if isinstance(each, Made):
            return known[each.equation][each.result]
        return each.value if isinstance(each, Held) else images

    for i, equation in enumerate(equations):
        values = [value(each) for each in equation.reads]
        reads_wide = any(isinstance(e, Made) and e.equation in of_float32 for e in equation.reads)
        is_wide = is_small(equation, small) and (i in of_float32 or reads_wide)
        if is_wide:
            values = [e.astype(jnp.float32) if e.dtype == small else e for e in values]
        made = _bound(equation.eqn, values, small, wide=is_wide)
        if is_wide and i not in of_float32:
            made = [each.astype(small) for each in made]
        known[i] = made
    return [value(each) for each in outputs]


def _bound(eqn: Any, values: list[Any], small: Any, *, wide: bool) -> list[Any]:
    """Run an equation; `wide` in float32 where it asks for the small type."""
    params = dict(eqn.params)
    if wide:
        params = {k: np.dtype(np.float32) if _is_type(v, small) else v for k, v in params.items()}
    made = eqn.primitive.bind(*values, **params)
    return list(made) if eqn.primitive.multiple_results else [made]


def _is_type(value: Any, dtype: Any) -> bool:
    return isinstance(value, (np.dtype, type)) and value not in (bool, int) and value == dtype


def _line(frames: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """Return the line of the twin behind an equation, and its text."""
    if not frames:
        return "", ""
    says = [each for each in frames if Path(each[0]).name not in _PLUMBING] or frames
    path, line = says[0]
    return f"{Path(path).name}:{line}", linecache.getline(path, line).strip()


def _frames(eqn: Any) -> Iterator[tuple[str, int]]:
    traceback = eqn.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if Path(frame.file_name).parent.name in ("vit_jax", "exporting"):
            yield frame.file_name, frame.line_num
