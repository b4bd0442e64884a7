"""Faults to inject on purpose: a check that cannot fail proves nothing.

Each is a mistake people make when they port a ViT, written once for both frameworks. It is patched into
the live model code of one twin, in one block or in all, while `inject` lasts, and `parity check --fault
NAME` must then fail and name the module. `steps` does the same to training.
"""

from parity.faults import (  # noqa: F401 - each registers its faults
    activations,
    attention,
    embedding,
    gradients,
    layers,
    norms,
    outside,
    pooling,
    residuals,
)
from parity.faults.patching import inject
from parity.faults.registry import FAULTS, Fault, Injection, parse

__all__ = ["FAULTS", "Fault", "Injection", "inject", "parse"]
