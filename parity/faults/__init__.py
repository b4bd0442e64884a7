"""Faults to inject on purpose: a check that cannot fail proves nothing.

Each is a mistake people make when they port a ViT. It is patched into the live model code of one twin
while `inject` lasts, and `parity check --fault NAME` must then fail and name the module.
"""

from parity.faults import basics, variants  # noqa: F401 - each registers its faults
from parity.faults.registry import FAULTS, Fault, inject

__all__ = ["FAULTS", "Fault", "inject"]
