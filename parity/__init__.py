"""Conversion between the twins, and the proof that they are the same function."""

from parity.files import Loaded, load, save
from parity.pairing import pair, to_jax, to_torch

__all__ = ["Loaded", "load", "pair", "save", "to_jax", "to_torch"]
