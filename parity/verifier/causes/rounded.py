"""Operands of a product that one side rounds to a smaller type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parity.verifier.causes.cause import Cause, Explanation
from parity.verifier.search.exchange import closer_moved, outside, rerun
from parity.verifier.search.meeting import Index
from parity.verifier.search.region import Gap, Region

LARGEST = 24
"""Largest region, in operations, that is run again."""


def _to(name: str) -> Callable[[np.ndarray], np.ndarray]:
    def rounded(x: np.ndarray) -> np.ndarray:
        import ml_dtypes

        with np.errstate(over="ignore"):  # what float16 has not is infinite in it
            return x.astype(np.dtype(getattr(ml_dtypes, name, name))).astype(np.float64)

    return rounded


def _tf32(x: np.ndarray) -> np.ndarray:
    """Round to float32 with 10 bits of mantissa, ties away from zero."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


TYPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "bfloat16": _to("bfloat16"), "TF32": _tf32, "float16": _to("float16"), "float32": _to("float32")
}  # fmt: skip


def judge(gap: Gap, _: Index) -> Explanation | None:
    """Find the type to which one side rounds its operands: the other's rounded ones give its product."""
    for region, wanted, side in ((gap.a, gap.value_b, "B"), (gap.b, gap.value_a, "A")):
        if not _is_product(region):
            continue
        reads = region.program.values(outside(region))
        floats = {i: v for i, v in reads.items() if getattr(v, "dtype", np.dtype(int)).kind == "f"}
        for name, rounded in TYPES.items():
            given = {i: rounded(v) for i, v in floats.items()}
            if closer_moved(wanted, rerun(region, given=given), gap.error):
                return "rounded operands", f"only {side} rounds what is multiplied to {name}"
    return None


def _is_product(region: Region) -> bool:
    ops = [region.program.operations[i] for i in region.operations]
    return len(ops) <= LARGEST and any(op.name in ("matmul", "conv") for op in ops)


CAUSES = (
    Cause(
        "rounded operands",
        "One side rounds the operands of a product to a smaller type.",
        judge,
        "jnp.tanh(x @ w) @ v",
        "jnp.tanh(rounded(x) @ rounded(w)) @ v",
    ),
)
