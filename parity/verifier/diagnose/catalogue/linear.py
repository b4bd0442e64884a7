"""Linear layers: bias, orientation of the matrix, order of the outputs, precision of the product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.numerics import exactly, rounded, tf32, tf32_cut
from parity.verifier.diagnose.catalogue.tensors import BIAS, sources, vector
from parity.verifier.diagnose.segment import Segment

_F32 = "torch.set_float32_matmul_precision('highest')"
_HIGHEST = "jax.default_matmul_precision('highest')"

PRODUCTS = Aspect(
    "product",
    "matmul-precision",
    (
        Option("operands as they are", exactly, torch=_F32, jax=_HIGHEST),
        Option("operands rounded to TF32", tf32),
        Option("operands cut to TF32", tf32_cut),
        Option("operands rounded to bfloat16", lambda x: rounded(x, "bfloat16")),
        Option("operands rounded to float16", lambda x: rounded(x, "float16")),
    ),
    alone=True,
)
"""What is done to both operands of a product of matrices; their sum is taken to be exact."""


def computations(segment: Segment) -> Iterator[Computation]:
    """A product with the module's one matrix, and a bias."""
    matrices = [w for w in segment.parameters.values() if w.ndim in (2, 3) and w.size > max(w.shape)]
    if len(matrices) != 1 or segment.children or not segment.result.ndim:
        return
    for _, x in sources(segment):
        found = _flat(x, matrices[0], segment.result)
        if found is not None:
            yield _linear(segment, *found)
            return


def _flat(x: np.ndarray, weight: np.ndarray, result: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(..., I) and (O, I) of a layer, whose heads may have an axis of their own on either side."""
    if weight.ndim == 3 and weight.shape[0] == x.shape[-1] and result.shape[-2:] == weight.shape[1:]:
        weight = weight.reshape(len(weight), -1).T  # (I, h, d)
    elif weight.ndim == 3 and x.shape[-2:] == weight.shape[:2] and result.shape[-1] == weight.shape[2]:
        weight = weight.reshape(-1, weight.shape[2]).T  # (h, d, O)
        x = x.reshape(*x.shape[:-2], -1)
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1]:
        return None
    return (x, weight) if x.size // x.shape[-1] * len(weight) == result.size else None


def _linear(segment: Segment, x: np.ndarray, weight: np.ndarray) -> Computation:
    bias = vector(segment, len(weight), BIAS)
    matrix = [Option("the matrix as it is", weight)]
    if weight.shape[0] == weight.shape[1]:
        matrix.append(Option("the matrix transposed", weight.T, torch="x @ W", jax="x @ kernel.T"))
    matrix.append(Option("no product at all", None, "missing-linear"))
    added = (
        Option("bias added", 1, torch="nn.Linear(..., bias=True)", jax="nnx.Linear(..., use_bias=True)"),
        Option(
            "bias not added",
            0,
            torch="nn.Linear(..., bias=False)",
            jax="nnx.Linear(..., use_bias=False)",
        ),
        Option("bias added twice", 2),
        Option("bias subtracted", -1),
    )
    # where there is none, the label is that of not adding it: the other side may have one
    aspects = (
        PRODUCTS,
        Aspect("matrix", "transposed-weight", tuple(matrix)),
        Aspect("bias", "linear-bias", added if bias is not None else (added[1],)),
        Aspect("order", "permuted-outputs", _orders(segment, x, weight, bias)),
    )

    def compute(v: Values) -> np.ndarray | None:
        y = x if v["matrix"] is None else v["product"](x) @ v["product"](v["matrix"]).T
        if y.size != segment.result.size:
            return None
        y = y if bias is None else y + v["bias"] * bias
        return y[..., v["order"]].reshape(segment.result.shape)

    return Computation("linear", aspects, compute)


def _orders(
    segment: Segment, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> tuple[Option, ...]:
    """As they are, or the permutation that brings the outputs nearest to the result's."""
    options = [Option("outputs in order", slice(None))]
    y = (x @ weight.T + (0.0 if bias is None else bias)).reshape(-1, len(weight))
    result = segment.result.reshape(y.shape)
    probe = np.random.default_rng(0).standard_normal(len(y))  # equal only for equal columns
    mine, theirs = np.argsort(probe @ y), np.argsort(probe @ result)
    order = np.empty(len(weight), dtype=np.int64)
    order[theirs] = mine
    if len(weight) > 1 and (order != np.arange(len(order))).any():
        moved = int((order != np.arange(len(order))).sum())
        options.append(Option(f"{moved} of {len(order)} outputs permuted", order))
    return tuple(options)
