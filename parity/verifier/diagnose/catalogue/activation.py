"""Elementwise functions: activations of MLPs and of the head."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.numerics import erf, sigmoid, softmax
from parity.verifier.diagnose.catalogue.tensors import sources
from parity.verifier.diagnose.segment import Segment

Function = Callable[[np.ndarray], np.ndarray]


def gelu(x: np.ndarray) -> np.ndarray:
    """x Phi(x) (arXiv 1606.08415)."""
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The approximation of the same paper."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


FUNCTIONS: tuple[Option, ...] = (
    Option(
        "exact GELU",
        gelu,
        "gelu-kind",
        "nn.GELU(approximate='none')",
        "jax.nn.gelu(x, approximate=False)",
    ),
    Option(
        "tanh GELU",
        gelu_tanh,
        "gelu-kind",
        "nn.GELU(approximate='tanh')",
        "jax.nn.gelu(x, approximate=True)",
    ),
    Option(
        "quick GELU, x sigmoid(1.702 x)",
        lambda x: x * sigmoid(1.702 * x),
        "gelu-kind",
        "x * torch.sigmoid(1.702 * x)",
        "x * jax.nn.sigmoid(1.702 * x)",
    ),
    Option("SiLU", lambda x: x * sigmoid(x), "activation-kind", "nn.SiLU()", "jax.nn.silu(x)"),
    Option("ReLU", lambda x: np.maximum(x, 0.0), "activation-kind", "nn.ReLU()", "jax.nn.relu(x)"),
    Option("no activation", lambda x: x, "missing-activation", "x", "x"),
    Option("tanh", np.tanh, "activation-kind", "torch.tanh(x)", "jnp.tanh(x)"),
    Option("sigmoid", sigmoid, "activation-kind", "torch.sigmoid(x)", "jax.nn.sigmoid(x)"),
    Option(
        "softmax over the last axis", softmax, "activation-kind", "x.softmax(-1)", "jax.nn.softmax(x)"
    ),
    Option(
        "log of the softmax over the last axis",
        lambda x: np.log(softmax(x)),
        "activation-kind",
        "x.log_softmax(-1)",
        "jax.nn.log_softmax(x)",
    ),
    Option("squared ReLU", lambda x: np.maximum(x, 0.0) ** 2, "activation-kind"),
    Option("ReLU6", lambda x: np.clip(x, 0.0, 6.0), "activation-kind", "nn.ReLU6()", "jax.nn.relu6(x)"),
    Option(
        "leaky ReLU, slope 0.01",
        lambda x: np.where(x > 0, x, 0.01 * x),
        "activation-kind",
        "nn.LeakyReLU()",
    ),
    Option("ELU", _elu, "activation-kind", "nn.ELU()", "jax.nn.elu(x)"),
    Option("softplus", _softplus, "activation-kind", "nn.Softplus()", "jax.nn.softplus(x)"),
    Option(
        "Mish", lambda x: x * np.tanh(_softplus(x)), "activation-kind", "nn.Mish()", "jax.nn.mish(x)"
    ),
    Option(
        "hard swish",
        lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
        "activation-kind",
        "nn.Hardswish()",
        "jax.nn.hard_swish(x)",
    ),
    Option("GELU twice", lambda x: gelu(gelu(x)), "activation-twice"),
)
"""Ordered by how common they are; the slug is of the cause where one side alone departs by it."""

NAMED = {
    r"gelu.*tanh|tanh.*gelu|gelu_?new": "tanh GELU",
    r"quick": "quick GELU, x sigmoid(1.702 x)",
    r"silu|swish": "SiLU",
    r"relu": "ReLU",
    r"softmax": "softmax over the last axis",
    r"tanh": "tanh",
    r"identity|drop": "no activation",
}
_HEADS = r"head|logits|identity|drop|^out"


def computations(segment: Segment) -> Iterator[Computation]:
    """An elementwise function of a tensor of the result's shape, and of two that gate each other."""
    if segment.parameters and not segment.children:
        return
    options = _ordinary_first(segment)
    same = [(name, x) for name, x in sources(segment) if x.shape == segment.result.shape]
    if same:
        of = Aspect("of", "wrong-input", tuple(Option(f"of {name}", x) for name, x in same[:3]))
        kind = Aspect("activation", "activation-kind", options)
        yield Computation("activation", (kind, of), lambda v: v["activation"](v["of"]), slug=_slug)
    yield from _gates(segment, options)


def _slug(a: Values, b: Values) -> str:
    slugs = {option.value: option.slug for option in FUNCTIONS}
    found = {slugs[a["activation"]], slugs[b["activation"]]}
    if a["activation"] is b["activation"]:
        return "wrong-input"
    odd = found - {"gelu-kind", "activation-kind"}
    return odd.pop() if odd else "gelu-kind" if found == {"gelu-kind"} else "activation-kind"


def _ordinary_first(segment: Segment) -> tuple[Option, ...]:
    """The list with what the module says it is at the front."""
    said = f"{segment.module.name} {segment.module.facts} {segment.target}".lower()
    label = next((label for pattern, label in NAMED.items() if re.search(pattern, said)), "exact GELU")
    if segment.children and label == "exact GELU" and re.search(_HEADS, segment.target):
        label = "no activation"
    return tuple(sorted(FUNCTIONS, key=lambda option: option.label != label))


def _gates(segment: Segment, options: tuple[Option, ...]) -> Iterator[Computation]:
    """act(gate) * value of the two halves of one tensor (arXiv 2002.05202)."""
    for name, x in sources(segment):
        if x.shape[:-1] != segment.result.shape[:-1] or x.shape[-1] != 2 * segment.result.shape[-1]:
            continue
        first, second = np.split(x, 2, axis=-1)
        every = np.arange(segment.result.shape[-1]) * 2
        halves = (
            Option("gate in the first half", (first, second)),
            Option("gate in the second half", (second, first)),
            Option("gate in the even channels", (x[..., every], x[..., every + 1])),
            Option("gate in the odd channels", (x[..., every + 1], x[..., every])),
        )
        parts = (Option("gate times value", True), Option("the gate alone", False, "missing-gate"))
        if re.search(r"^act\w* in", segment.target):
            parts = parts[::-1]
            options = tuple(sorted(options, key=lambda option: option.label != "no activation"))
        yield Computation(
            f"gate of {name}",
            (
                Aspect("activation", "activation-kind", options),
                Aspect("gate", "gate-order", halves),
                Aspect("product", "missing-gate", parts),
            ),
            lambda v: v["activation"](v["gate"][0]) * (v["gate"][1] if v["product"] else 1.0),
        )
        return
