"""Gradients of another activation, and gradients that do not pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, permutations

import numpy as np

from parity.verifier.causes.activations import PARTS, inputs_of
from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.search.exchange import is_a, is_b
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap

_Slope = Callable[[np.ndarray], np.ndarray]

DETACHED, NOT_DETACHED = "detached", "not detached"
"""Names of gradients that stop in B alone, or in A alone."""
MOST_READ = 6
"""Most values of a region that are tried as the arriving gradient, or as the activation's input."""


def _of_part(name: str, steepness: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> _Slope:
    """Return the derivative of x (1 + f(x)) / 2, or of x f(x) where f is a sigmoid; `steepness` is f'
    from x and f."""

    def slope(x: np.ndarray) -> np.ndarray:
        part = PARTS[name](x, float)
        whole = part + x * steepness(x, part)
        return whole if "gelu" not in name or name == "quick gelu" else (1 + whole) / 2

    return slope


SLOPES: dict[str, _Slope] = {
    "gelu": _of_part("gelu", lambda x, _: np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2)),
    "gelu, tanh": _of_part(
        "gelu, tanh", lambda x, f: np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2) * (1 - f**2)
    ),
    "quick gelu": _of_part("quick gelu", lambda _, f: 1.702 * f * (1 - f)),
    "silu": _of_part("silu", lambda _, f: f * (1 - f)),
    "relu": lambda x: (x > 0).astype(float),
    "relu squared": lambda x: 2 * np.maximum(x, 0),
    "tanh": lambda x: 1 - np.tanh(x) ** 2,
    "sigmoid": lambda x: PARTS["silu"](x, float) * (1 - PARTS["silu"](x, float)),
    "identity": np.ones_like,
}
"""Derivative of each activation."""


@np.errstate(all="ignore")  # of masked values, of which most slopes are no number
def judge(gap: Gap, _: Index) -> Explanation | None:
    """Recognise the slope of another activation, alone or times the arriving gradient."""
    if gap.value_a.dtype.kind != "f":
        return None
    reads = [each for region in (gap.a, gap.b) for each in islice(inputs_of(region, gap), MOST_READ)]
    alone = [(np.ones_like(x), x) for x in reads]
    for arriving, x in (*alone, *permutations(reads, 2)):
        of_a = [name for name, slope in SLOPES.items() if is_a(gap, arriving * slope(x))]
        if not of_a:
            continue
        of_b = [name for name, slope in SLOPES.items() if is_b(gap, arriving * slope(x))]
        if len(of_a) == len(of_b) == 1:
            return "activation", f"the gradient of {of_b[0]} where A has that of {of_a[0]}"
    return None


def nothing(gap: Gap, _: Index) -> Explanation | None:
    """Recognise a gradient that does not pass."""
    backward = any(path.startswith("gradient") for path, _ in gap.b.program.outputs)
    if not backward or gap.value_b.any() or not gap.value_a.any():
        return None
    return "detached", "no gradient passes where A's does"


CAUSES = (
    Cause(
        "detached",
        "No gradient passes where A's does.",
        nothing,
        "jnp.tanh(x @ w)",
        "jnp.tanh(lax.stop_gradient(x @ w))",
    ),
    Cause(
        "not detached",
        "A gradient passes where A's does not.",
        nothing,
        "jnp.tanh(lax.stop_gradient(x @ w) + b)",
        "jnp.tanh(x @ w + b)",
    ),
)
