"""All deliberate faults with which the verifier is scored: those of `parity.faults`, and those here.

Importing this package adds those here to the registries of `parity.faults`.
"""

from evidence.faults import (  # noqa: F401 - each registers its faults
    activations,
    attention,
    embedding,
    gradients,
    layers,
    norms,
    outside,
    pooling,
    residuals,
    steps,
)
from parity.faults import FAULTS
from parity.faults.step_table import STEP_FAULTS

__all__ = ["FAULTS", "STEP_FAULTS"]
