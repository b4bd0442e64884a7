"""Any Vision Transformer checkpoint in either twin or any dialect; the proof that the twins agree."""

from parity.measure.traces import Trace, record
from parity.porting.checkpoint import read_checkpoint
from parity.porting.conversion import convert
from parity.porting.files import load, save
from parity.porting.model import Loaded, Prediction
from parity.twins.pairing import pair, to_jax, to_torch

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
