"""What was recorded is what ran: each output of a walk is held to what JAX computes of the same program.

JAX compiles the traced program as a whole, in float64, and runs it on the same leaves. How far an
output may be from that is measured: where one is farther away than the least limit, JAX runs once more
with nudged leaves, as the walk does in `search/nearness.py`. This sees what a test of each rule by
itself does not: a rule with arguments that nobody thought of, an equation that the walk takes for
another, a loop that it plays wrong. To run each distinct equation by itself instead would cost more,
because each is a compilation, and would not see how the walk puts them together.

If that is not enough, JAX runs the program one equation after another, and once more with the results
of all of them nudged, which also shows what rounding does inside. Where JAX's compiler is what parts,
because it computes one value in two ways, say, this run is the walk's, and nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parity.measure.nearness import LEAST
from parity.measure.nudge import nudge_numbers
from parity.measure.tolerance import FACTOR
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.jaxprs.by_jax import (
    compiled,
    constants_of,
    equation,
    evaluated,
    runs_alike,
)
from parity.verifier.programs.jaxprs.equations import called_jaxpr
from parity.verifier.programs.jaxprs.sketches import Sketch, is_finite, sketched
from parity.verifier.programs.jaxprs.sketches import least_distance as apart_by_sums
from vit_config.errors import REPORT, OwnFaultError, first_line

NUDGE = 1
"""Seed."""

Seen = Callable[[Any, Sequence[Any], Sequence[Any], Any], None]
"""Called with an equation, the values of its operands, those of its results, and its line."""


class JaxRun:
    """What JAX computes of a traced program, run before the walk, whose values need memory then."""

    def __init__(self, closed: Any, leaves: Sequence[Any]) -> None:
        """Compile and run a program.

        Args:
            closed: the traced program.
            leaves: the values of its arguments.
        """
        self._closed, self._leaves = closed, leaves
        self.why_not = ""
        """Why there is nothing to compare with; empty where there is."""
        self._results: list[Any] | None = None
        if not runs_alike(closed):
            return
        try:
            self._results = self._run(sketches=True)
            if not all(is_finite(each) for each in self._results if isinstance(each, Sketch)):
                self._results = self._run(sketches=False)
        except Exception as error:  # the walk needs no compiler
            self.why_not = f"was not compared with JAX's own run, which fails: {first_line(error)}"

    def _run(self, *, sketches: bool) -> list[Any]:
        self._compiled = compiled(self._closed, self._leaves, sketches=sketches)
        return self._compiled(constants_of(self._closed), self._leaves)

    def check(
        self, outputs: Sequence[tuple[str, Any]], walk_again: Callable[[Seen], None], name: str
    ) -> None:
        """Hold the outputs of a walk to what JAX computed.

        Args:
            outputs: paths and values, as the walk has them.
            walk_again: walks the program once more, and shows each equation to the function it is given.
            name: what the program is called.

        Raises:
            OwnFaultError: an output is another number than JAX's.
        """
        if self._results is None:
            return
        values, consts = [each for _, each in outputs], constants_of(self._closed)
        apart = _apart(values, self._results)
        if max(apart, default=0.0) <= LEAST.norm:
            return
        if not _beyond(apart, _limits(self._results, self._compiled(consts, _nudged(self._leaves)))):
            return
        one_by_one = evaluated(self._closed.jaxpr, consts, self._leaves)
        limits = _limits(
            one_by_one, evaluated(self._closed.jaxpr, consts, _nudged(self._leaves), _nudged)
        )
        apart = _apart(values, one_by_one)
        beyond = _beyond(apart, limits)
        if not beyond:
            return
        worst = max(beyond, key=lambda k: apart[k])
        raise OwnFaultError(
            f"{name}: its output {outputs[worst][0]}".rstrip()
            + f" was recorded {apart[worst]:.1e} away from what JAX computes, of which rounding explains"
            f" {limits[worst]:.1e}; {_first_fault(walk_again)}. {REPORT}"
        )


def _first_fault(walk_again: Callable[[Seen], None]) -> str:
    """Say which is the first equation whose results are not those that JAX computes of its operands."""
    first: list[str] = []

    def see(eqn: Any, operands: Sequence[Any], results: Sequence[Any], line: Any) -> None:
        if first or called_jaxpr(eqn) is not None:  # of a call, its equations were seen
            return
        ran = equation(eqn, operands)
        apart = _apart(results, ran)
        if max(apart, default=0.0) > LEAST.norm:
            moved = equation(eqn, _nudged(operands))
            if _beyond(apart, _limits(ran, moved)):
                first.append(f"{eqn.primitive}{f' at {line}' if line else ''}, by {max(apart):.1e}")

    walk_again(see)
    if not first:
        return "each of its operations is JAX's by itself"
    return f"the first operation that is not JAX's is {first[0]}"


def _apart(own: Sequence[Any], ran: Sequence[Any]) -> list[float]:
    """Return how far each value is from JAX's, relative to that; 0 for what holds no numbers."""
    return [_apart_by(mine, theirs) for mine, theirs in zip(own, ran, strict=True)]


def _apart_by(mine: Any, theirs: Any) -> float:
    if isinstance(theirs, Sketch):
        return apart_by_sums(theirs, mine if isinstance(mine, Sketch) else sketched(np.asarray(mine)))
    return distance(np.asarray(theirs), np.asarray(mine)) if _holds_numbers(theirs) else 0.0


def _limits(ran: Sequence[Any], moved: Sequence[Any]) -> list[float]:
    """Return how far rounding may lead from each value, given where nudges lead."""
    return [max(FACTOR * each, LEAST.norm) for each in _apart(moved, ran)]


def _beyond(apart: Sequence[float], limits: Sequence[float]) -> list[int]:
    return [k for k, (each, limit) in enumerate(zip(apart, limits, strict=True)) if not each <= limit]


def _nudged(values: Sequence[Any]) -> list[Any]:
    wide = [getattr(each, "dtype", None) == np.float64 for each in values]
    return [
        nudge_numbers(np.asarray(each), NUDGE, str(i)) if wide[i] else each
        for i, each in enumerate(values)
    ]


def _holds_numbers(value: Any) -> bool:
    """Return whether a value is an array of numbers, and not of keys of random generators."""
    return isinstance(getattr(value, "dtype", None), np.dtype)
