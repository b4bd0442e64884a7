"""Values of B that are a multiple of A's: a sign, a scale, the size of an axis, n - 1 for n."""

from __future__ import annotations

import numpy as np

from parity.measure.nearness import MOST as FARTHEST
from parity.measure.tolerance import FLOAT64
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.causes.numbers import slots
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.operation import Ref
from parity.verifier.search.exchange import closer, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

SHOWN = 1e-8
"""Distance of a factor from one up to which ten digits would show two of it at most."""
MOST_SCALES = 6
"""How many scales of a region are tried as a product."""


def ratio_of(gap: Gap) -> float | None:
    """Return how many times A's value B's is; None where it is no multiple, or equal."""
    a, b = gap.value_a.ravel(), gap.value_b.ravel()
    if a.dtype.kind not in "fc" or a.shape != b.shape or a.size < 3:
        return None
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        return None
    ratio = float(np.vdot(a, b).real / np.vdot(a, a).real) if a.any() else 0.0
    once = abs(ratio - 1) <= FLOAT64
    return ratio if ratio and not once and distance(a, b / ratio) <= FLOAT64 else None


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise one factor for all elements."""
    ratio = ratio_of(gap)
    if ratio is None:
        return _size_of_an_axis(gap)
    if ratio == -1:
        return "sign", "B's value is A's with the other sign"
    sizes = _reduced(gap)
    for n in (n for n in sizes if n - 1 not in sizes):  # else two means may have changed places
        for power, root in ((1, ""), (0.5, "the root of ")):
            for which, over, under in (("n - 1 for n", n, n - 1), ("n for n - 1", n - 1, n)):
                if closer(np.asarray((over / under) ** power), np.asarray(ratio), 1.0):
                    return which, f"B's value is {root}{over} / {under} times A's"
    of_a, of_b = _scales(gap.a), _scales(gap.b)
    given = any(region.program.maker(region.end).run is None for region in (gap.a, gap.b))
    unknown = bool(of_a) == bool(of_b) or given or not _is_product(of_a or of_b, ratio)
    name = "factor" if unknown else "scale left out" if of_a else "one scale too many"
    times = f"{ratio:.10g}" if abs(ratio - 1) > SHOWN else f"1 {ratio - 1:+.2g}"
    return name, f"B's value is {times} times A's"


def _size_of_an_axis(gap: Gap) -> Explanation | None:
    """Recognise a value of one number, as of a loss, that is off by the size of an axis."""
    if gap.value_a.size != 1 or gap.value_a.dtype.kind != "f" or not gap.value_a.all():
        return None
    ratio = float(gap.value_b.ravel()[0] / gap.value_a.ravel()[0])
    for region in (gap.b, gap.a):
        for i in outside(region):
            shape = region.program.operations[i].shape
            for axis, n in enumerate(shape):
                for times, text in ((n, f"{n} times"), (1 / n, f"1 / {n} of")):
                    if n > 1 and abs(ratio / times - 1) <= FLOAT64:
                        return (
                            "factor",
                            f"B's value is {text} A's: {n} is the size of axis {axis} of {list(shape)}",
                        )
    return None


def _scales(region: Region) -> list[float]:
    """Return the numbers by which a region multiplies or divides something; of a region that computes
    nothing, those of the operation that made its value."""
    program = region.program
    scales = [slot.value for slot in slots(region) if slot.operation.name in ("mul", "div")]
    ops = [program.operations[i] for i in region.operations]
    if not any(not op.is_layout for op in ops):
        ops = [made := program.maker(region.end)]
        if made.name in ("mul", "div"):
            scales += [each for each in made.operands if not isinstance(each, Ref)]
    read = (program.operations[i] for op in ops if op.name in ("mul", "div") for i in op.inputs)
    scales += [each.number for each in read if each.number is not None]
    return [float(each) for each in scales if np.size(each) == 1]


def _is_product(numbers: list[float], ratio: float) -> bool:
    """Return whether a ratio, or its inverse, is the product of some numbers and inverses of others."""
    several = [abs(each) for each in numbers if each and np.isfinite(each)][:MOST_SCALES]
    logs = [0.0]
    for each in np.log(several):
        logs += [total + sign * each for total in logs for sign in (1, -1)]
    return any(abs(abs(total) - abs(np.log(abs(ratio)))) <= FARTHEST.norm for total in logs)


def _reduced(gap: Gap) -> list[int]:
    """Return how many elements the reductions of a place run over."""
    sizes = set()
    for region in (gap.a, gap.b):
        for index in region.operations:
            op = region.program.operations[index]
            of = region.program.operations[op.inputs[0]] if op.inputs else op
            if op.name in ("sum", "mean", "var", "std") and op.size and of.dtype[:3] == "flo":
                sizes.add(of.size // op.size)  # else it counts
    return sorted(size for size in sizes if size > 1)


CAUSES = (
    Cause(
        "sign",
        "B's value, or one term of it, has the other sign.",
        judge,
        "jnp.exp(x @ w - x @ v)",
        "jnp.exp(x @ v - x @ w)",
    ),
    Cause(
        "n - 1 for n",
        "B divides by n - 1 where A divides by n, as in a variance.",
        judge,
        "(x**2).mean(-1) - x.mean(-1) ** 2",
        "x.var(-1, ddof=1)",
    ),
    Cause(
        "n for n - 1",
        "B divides by n where A divides by n - 1.",
        judge,
        "x.var(-1, ddof=1)",
        "(x**2).mean(-1) - x.mean(-1) ** 2",
    ),
    Cause(
        "factor",
        "B's value, or one term of it, is a multiple of A's.",
        judge,
        "x.sum(1) @ w",
        "(x @ w).repeat(2, 1).sum(1)",
    ),
)
