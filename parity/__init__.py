"""Any Vision Transformer checkpoint in either twin or any dialect; the proof that the twins agree."""

from parity.checkpoint import read_checkpoint
from parity.conversion import convert
from parity.files import load, save
from parity.model import Loaded, Prediction
from parity.pairing import pair, to_jax, to_torch
from parity.traces import Trace, record

__all__ = [
    "Loaded",
    "Prediction",
    "Trace",
    "convert",
    "load",
    "pair",
    "read_checkpoint",
    "record",
    "save",
    "to_jax",
    "to_torch",
]
