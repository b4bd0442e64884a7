"""Activations of B that differ from A's of the same value."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.programs.fingerprint import distance
from parity.verifier.programs.special import special
from parity.verifier.search.exchange import computing, grain, is_a, outside
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region
from parity.verifier.search.written import FLOAT32, TYPES, rounded

FOLLOWING = 8
"""Operations behind a value among which its activation is sought."""
NUMBERS_PER_SLOPE = 2
"""Fewest numbers for each slope that is read from them."""

Numbers = Callable[[float], float]
"""A number as a program holds it: in full, or in a smaller type."""
Function = Callable[[np.ndarray, Numbers], np.ndarray]


def _gelu_tanh(x: np.ndarray, held: Numbers) -> np.ndarray:
    return np.tanh(held(np.sqrt(2 / np.pi)) * (x + held(0.044715) * x**3))


def _erf(x: np.ndarray, held: Numbers) -> np.ndarray:
    return special("erf", x * held(np.sqrt(0.5)))


def _sigmoid(x: np.ndarray, _: Numbers) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _quick(x: np.ndarray, held: Numbers) -> np.ndarray:
    return _sigmoid(held(1.702) * x, held)


def _hard_sigmoid(x: np.ndarray, _: Numbers) -> np.ndarray:
    return np.clip(x + 3, 0, 6) / 6


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(x))


PARTS: dict[str, Function] = {
    "gelu": _erf,
    "gelu, tanh": _gelu_tanh,
    "quick gelu": _quick,
    "silu": _sigmoid,
    "tanh": lambda x, _: np.tanh(x),
}
"""The characteristic function in each activation; the rest is arithmetic that all of them share."""

FACTORS: dict[str, Function] = {
    "gelu": lambda x, held: 0.5 * (1 + _erf(x, held)),
    "gelu, tanh": lambda x, held: 0.5 * (1 + _gelu_tanh(x, held)),
    "quick gelu": _quick,
    "silu": _sigmoid,
    "hard swish": _hard_sigmoid,
    "mish": lambda x, _: np.tanh(np.logaddexp(x, 0)),
}
"""What multiplies x in each activation."""

ACTIVATIONS: dict[str, Function] = {
    **{n: lambda x, held, f=f: x * f(x, held) for n, f in FACTORS.items()},
    "relu": lambda x, _: np.maximum(x, 0),
    "relu squared": lambda x, _: np.maximum(x, 0) ** 2,
    "tanh": lambda x, _: np.tanh(x),
    "sigmoid": _sigmoid,
    "softmax": lambda x, _: (e := np.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
    "identity": lambda x, _: x,
    "hard sigmoid": _hard_sigmoid,
    "hard tanh": lambda x, _: np.clip(x, -1, 1),
    "relu6": lambda x, _: np.clip(x, 0, 6),
    "elu": lambda x, _: _elu(x),
    "selu": lambda x, _: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "softplus": lambda x, _: np.logaddexp(x, 0),
}
LIMITED = frozenset(["hard tanh", "relu6"])
"""Activations that are others where no number is beyond their limits."""
_LIMITS = frozenset(["clip", "minimum", "hardtanh"])
_CHOICES = frozenset(["where", "leaky_relu", "prelu", "maximum", "_prelu_kernel"])
_GATE_OF = {"silu": "sigmoid", "hard swish": "hard sigmoid"}
"""What multiplies x in some activations has a name of its own."""
GATES: dict[str, Function] = {
    "sigmoid": _sigmoid,
    "softmax": lambda x, _: np.exp(x - x.max(-1, keepdims=True)),
}
"""Functions that turn scores into weights, up to the factor by which their sum becomes one."""
_KINDS = (
    PARTS,
    FACTORS,
    ACTIVATIONS,
    {n: lambda x, held, f=f: 1 + f(x, held) for n, f in PARTS.items()},
    GATES,
)


@np.errstate(all="ignore")
def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise another activation of the same value."""
    own, wanted = _numbers_of(gap.b), _numbers_of(gap.a)
    for x in inputs_of(gap.b, gap):
        for kinds in _KINDS:
            of_a = [n for n, f in kinds.items() if any(is_a(gap, f(x, held)) for held in wanted)]
            of_b = [
                n for n, f in kinds.items()
                if any(distance(gap.value_b, f(x, held)) <= grain(gap) for held in own)
            ]  # fmt: skip
            if kinds is ACTIVATIONS:
                of_a += leaky(x, gap.value_a, gap.a) if not of_a else []
                of_b += leaky(x, gap.value_b, gap.b) if not of_b else []
            of_a, of_b = _told_apart(of_a, gap.a), _told_apart(of_b, gap.b)
            if kinds is ACTIVATIONS and "relu" in of_b and not gap.value_b.any() and _is_relu(gap.b):
                of_b = ["relu"]
            if len(of_a) != 1 or len(of_b) != 1 or of_a == of_b:
                continue
            if of_b == ["identity"] and not computing(gap.b):
                of_b = _later(gap) or of_b
            if {*of_a, *of_b} <= _GATE_OF.keys() and kinds is FACTORS and not _multiplies(gap, x):
                of_a, of_b = [_GATE_OF[of_a[0]]], [_GATE_OF[of_b[0]]]
            return "activation", f"{of_b[0]} where A has {of_a[0]}"
    return None


def _told_apart(names: list[str], region: Region) -> list[str]:
    """Leave out activations that a value has as well because no number is beyond a limit."""
    limited = [name for name in names if name in LIMITED]
    if len(names) == len(limited) or not limited:
        return names
    has = any(op.name in _LIMITS for op in computing(region))
    return limited if has else [name for name in names if name not in LIMITED]


def _is_relu(region: Region) -> bool:
    """Return whether a region computes one ReLU, whatever its value is."""
    ops = computing(region)
    return len(ops) == 1 and (
        ops[0].name == "relu" or (ops[0].name == "maximum" and 0 in ops[0].operands)
    )


def leaky(x: np.ndarray, value: np.ndarray, region: Region) -> list[str]:
    """Name a value that is x where that is positive and a multiple of it elsewhere: the same multiple,
    or one for each row of an axis."""
    if not ((x > 0).any() or _chooses(region)):
        return []  # any multiple of x is one
    negative, limit = np.where(x < 0, x, 0.0), region.program.operations[region.end].near.norm
    for axis in (None, *range(x.ndim)):
        others = tuple(i for i in range(x.ndim) if i != axis)
        squares = (negative * negative).sum(others, keepdims=True)
        if np.count_nonzero(negative) < NUMBERS_PER_SLOPE * squares.size:
            continue
        slope = (negative * value).sum(others, keepdims=True) / np.where(squares, squares, 1)
        if slope.any() and distance(value, np.where(x < 0, slope * x, x)) <= limit:
            return [f"leaky relu of slope {slope.item():.6g}" if slope.size == 1 else "prelu"]
    return []


def _chooses(region: Region) -> bool:
    """Return whether a region, or what reads its value, takes numbers of one value or of another."""
    operations = region.program.operations
    readers = (op for op in operations[region.end + 1 :] if region.end in op.inputs)
    return any(op.name in _CHOICES for op in (*computing(region), *readers))


def _later(gap: Gap) -> list[str]:
    """Return the activation of a value that B computes next, and that leaves A's value as it is: B
    is right with that value in the place of the one that it reads."""
    program, near = gap.b.program, {gap.b.end}
    for op in program.operations[gap.b.end + 1 :]:
        if len(near) > FOLLOWING:
            break
        if not near.intersection(op.inputs):
            continue
        near.add(op.index)
        value = program.values([op.index])[op.index]
        if np.size(value) != gap.value_b.size or np.asarray(value).dtype.kind != "f":
            continue
        x, value = gap.value_b, np.reshape(value, gap.value_b.shape)
        names = [n for n, f in ACTIVATIONS.items() if distance(value, f(x, float)) <= grain(gap)]
        names = [n for n in names if is_a(gap, ACTIVATIONS[n](gap.value_a, float))]
        behind = Region(program, op.index, sorted(near))
        names = _told_apart(names or leaky(x, value, behind), behind)
        if len(names) == 1 and names != ["identity"]:
            return names
    return []


def _multiplies(gap: Gap, x: np.ndarray) -> bool:
    """Return whether B's value multiplies what it is computed of."""
    operations = gap.b.program.operations
    values = {gap.b.end}
    for op in operations[gap.b.end + 1 :]:
        if values.intersection(op.inputs):
            if op.is_layout:
                values.add(op.index)
            elif op.name == "mul":
                others = gap.b.program.values([i for i in op.inputs if i not in values]).values()
                if any(np.size(v) == x.size and np.array_equal(np.ravel(v), x.ravel()) for v in others):
                    return True
    return False


def _numbers_of(region: Region) -> list[Numbers]:
    """Return how a region may hold its numbers: in full, in the smaller types that its
    operations ask for, or as the shortest decimals of float32, as a program of JAX is read."""
    asked = {region.program.operations[i].epsilon for i in region.operations} & TYPES.keys()

    def smaller(epsilon: float) -> Numbers:
        return lambda number: float(rounded(np.asarray(number), epsilon))

    decimal = [lambda number: float(str(np.float32(number)))] if FLOAT32 in asked else []
    return [float, *map(smaller, sorted(asked)), *decimal]


def inputs_of(region: Region, gap: Gap) -> Iterator[np.ndarray]:
    """Yield what a region reads, of the size of its end, in its shape; the end of an empty region."""
    for value in region.program.values(outside(region)).values():
        if (
            isinstance(value, np.ndarray)
            and value.size == gap.value_a.size
            and value.ndim
            and value.dtype.kind == "f"
        ):
            yield value.reshape(gap.value_a.shape)


CAUSES = (
    Cause(
        "activation",
        "B applies another activation to the same value, or its gradient.",
        judge,
        "nn.gelu(x @ w, approximate=False) @ v",
        "nn.gelu(x @ w) @ v",
    ),
)
