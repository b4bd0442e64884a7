"""Wrong collectives of a program over a mesh: left out, done twice, a sum for a mean.

A collective is exchanged: what the devices hold is summed or averaged over them where B does not, or
left as it was where B does. It is named only if B's value is then one of A's and an output of B that
differed becomes A's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from parity.verifier.causes.cause import Cause
from parity.verifier.programs.fingerprint import fingerprint
from parity.verifier.programs.jaxprs.exchanges import Collective
from parity.verifier.programs.jaxprs.mesh import Devices, hold_the_same
from parity.verifier.programs.jaxprs.sharded import OnEach
from parity.verifier.programs.operation import Operation, Ref
from parity.verifier.programs.program import Program
from parity.verifier.search.meeting import meet, noise
from parity.verifier.search.places import Search
from parity.verifier.search.region import Gap, Region

LEFT_OUT, TWICE, SUM, MEAN = "collective left out", "collective twice", "sum for mean", "mean for sum"
_SUMS = {"psum": "psum", "reduce_scatter": "psum_scatter"}


@dataclass(frozen=True)
class _Exchange:
    """B's value as another collective would make it."""

    value: np.ndarray
    cause: str
    message: str


def collective_faults(search: Search) -> Iterator[tuple[Gap, str, str]]:
    """Yield B's wrong collectives, each with its name and a sentence; each is repaired in the search."""
    while unequal := search.unequal():
        fault = _next(search, unequal)
        if fault is None:
            return
        yield fault


def _next(search: Search, unequal: list[tuple[int, int]]) -> tuple[Gap, str, str] | None:
    a, b = search.a, search.b
    devices = _devices(b)
    if devices is None:
        return None
    met = meet(b.operations, search.index)
    roots = {y for _, y in unequal}
    for y in sorted(b.upstream(roots, (set(met) | noise(b)) - roots)):
        op = b.operations[y]
        if not isinstance(op.run, OnEach | Collective) or op.mark is None or op.dtype[:3] != "flo":
            continue
        own = b.values([y])[y]
        for exchange in _exchanges(b, op, own, devices):
            partners = search.index.meets(op, fingerprint(exchange.value))
            if not partners:
                continue
            fed = b.fed({y: exchange.value}, {})
            search.b = fed
            if len(search.unequal()) == len(unequal):
                search.b = b
                continue
            readers = _readers(b, y) if exchange.cause == LEFT_OUT else []
            x = partners[0].index
            computed = exchange.cause == LEFT_OUT and a.operations[x].run is not None
            region_a, region_b = Region(a, x, [x] if computed else []), Region(b, y, [y], readers)
            gap = Gap(region_a, region_b, exchange.value, own, repaired=fed)
            return gap, exchange.cause, exchange.message
    return None


def _readers(program: Program, index: int) -> list[int]:
    """Return the operations that compute with a value, skipping those that leave its numbers alone."""
    consumers, readers, stack = program.consumers(), [], [index]
    mark = program.operations[index].mark
    while stack:
        for each in consumers[stack.pop()]:
            if np.array_equal(program.operations[each].mark, mark):  # type: ignore[arg-type]
                stack.append(each)
            else:
                readers.append(each)
    return sorted(readers)


def _devices(program: Program) -> Devices | None:
    """Return the mesh that a program runs over; None if there is none."""
    for op in program.operations:
        if op.name == "shard":
            return op.run.args[0]  # type: ignore[union-attr]
    return None


def _exchanges(
    program: Program, op: Operation, own: np.ndarray, devices: Devices
) -> Iterator[_Exchange]:
    if op.name in _SUMS:
        yield from _of_sum(program, op, own, devices)
    elif op.name == "div":
        yield from _of_mean(program, op, own, devices)
    names = [each for each, size in devices.sizes.items() if size > 1]
    for count in range(1, len(names) + 1):
        for axes in combinations(names, count):
            if hold_the_same(devices, axes, own):
                continue
            where = f"over {' and '.join(axes)}"
            many = devices.along(axes)
            for name, how, word in (("psum", np.sum, "summed"), ("pmean", np.mean, "averaged")):
                sentence = f"{name} {where}: {word} over {many} devices, B's value is A's"
                yield _Exchange(devices.reduced(own, axes, how), LEFT_OUT, sentence)


def _of_sum(program: Program, op: Operation, own: np.ndarray, devices: Devices) -> Iterator[_Exchange]:
    axes = op.extra["axes"]
    (before,) = op.inputs
    many, where = devices.along(axes), f"over {' and '.join(axes)}"
    name = _SUMS[op.name]
    if hold_the_same(devices, axes, program.values([before])[before]):
        sentence = (
            f"{name} {where} of what its {many} devices already hold alike: {many} times A's value"
        )
        yield _Exchange(own / many, TWICE, sentence)
    else:
        sentence = f"{name} {where} where A has the mean of {many} devices"
        yield _Exchange(own / many, SUM, sentence)


def _of_mean(program: Program, op: Operation, own: np.ndarray, devices: Devices) -> Iterator[_Exchange]:
    first, second = op.operands
    if not isinstance(first, Ref) or isinstance(second, Ref) or np.ndim(second):
        return
    before = program.operations[first.index]
    if before.name not in _SUMS:
        return
    axes = before.extra["axes"]
    if float(second) == devices.along(axes):
        where = f"over {' and '.join(axes)}"
        sentence = f"the mean {where} where A has the sum of {devices.along(axes)} devices"
        yield _Exchange(own * float(second), MEAN, sentence)


CAUSES = (
    Cause(
        "collective left out",
        "B does not sum or average over devices.",
        collective_faults,
        "jnp.tanh(x).mean(0) @ w",
        "over_two_devices(lambda x: jnp.tanh(x).mean(0) @ w)(x)",
    ),
    Cause(
        "collective twice",
        "B sums over devices what they already hold alike.",
        collective_faults,
        "x.sum(0) @ w",
        "over_two_devices(lambda x: lax.psum(lax.psum(x.sum(0), 'data'), 'data') @ w)(x)",
    ),
    Cause(
        "sum for mean",
        "B sums over devices where A averages.",
        collective_faults,
        "jnp.tanh(x @ w).mean()",
        "over_two_devices(lambda x: lax.psum(jnp.tanh(x @ w).mean(), 'data'))(x)",
    ),
    Cause(
        "mean for sum",
        "B averages over devices where A sums.",
        collective_faults,
        "x.sum(0) @ w",
        "over_two_devices(lambda x: lax.pmean(x.sum(0), 'data') @ w)(x)",
    ),
)
