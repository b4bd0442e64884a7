"""Faults to inject on purpose: a check that cannot fail proves nothing.

Each is a mistake people make when they port a ViT, written once for both frameworks. It is patched into
the live model code of one twin, in one block or in all, while `inject` lasts, and `parity check --fault
NAME` must then fail and name the module. `steps` does the same to training. Here are five of models and
three of steps; the others, with which the verifier is scored, are in evidence/faults of a checkout.
"""

from parity.faults import models  # noqa: F401 - registers its faults
from parity.faults.patching import inject
from parity.faults.registry import FAULTS, Fault, Injection, parse

__all__ = ["FAULTS", "Fault", "Injection", "inject", "parse"]
