"""Vision Transformers in PyTorch and JAX: port them, find where two differ, prove that they agree.

Names are imported when they are first used: ``import parity`` loads neither framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parity.api import check, create_model, diff, export, match
    from parity.measure.traces import Trace, record
    from parity.porting.models.convert import convert
    from parity.porting.models.files import load, save
    from parity.porting.models.loaded import Loaded
    from parity.porting.models.pretrained import from_pretrained, push_to_hub, save_pretrained
    from parity.porting.reading.checkpoint import read_checkpoint
    from parity.testing import assert_loaded, assert_parity
    from parity.twins.pairing import to_jax, to_torch
    from parity.verifier.precision.bisect import bisect_precision
    from parity.verifier.precision.tolerances import tolerance_for

__all__ = [
    "Loaded",
    "Trace",
    "assert_loaded",
    "assert_parity",
    "bisect_precision",
    "check",
    "convert",
    "create_model",
    "diff",
    "export",
    "from_pretrained",
    "load",
    "match",
    "push_to_hub",
    "read_checkpoint",
    "record",
    "save",
    "save_pretrained",
    "to_jax",
    "to_torch",
    "tolerance_for",
]

_WHERE = {  # also `Prediction` and `pair`, which `__all__` does not promise
    "parity.api": ("check", "create_model", "diff", "export", "match"),
    "parity.measure.traces": ("Trace", "record"),
    "parity.porting.reading.checkpoint": ("read_checkpoint",),
    "parity.porting.models.convert": ("convert",),
    "parity.porting.models.files": ("load", "save"),
    "parity.porting.models.loaded": ("Loaded", "Prediction"),
    "parity.porting.models.pretrained": ("from_pretrained", "push_to_hub", "save_pretrained"),
    "parity.testing": ("assert_loaded", "assert_parity"),
    "parity.twins.pairing": ("pair", "to_jax", "to_torch"),
    "parity.verifier.precision.bisect": ("bisect_precision",),
    "parity.verifier.precision.tolerances": ("tolerance_for",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("vit-parity")
    if name not in _MODULES:
        raise AttributeError(f"module 'parity' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
