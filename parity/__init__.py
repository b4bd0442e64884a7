"""Conversion between the twins, and the proof that they are the same function."""

from parity.files import Loaded, load, save

__all__ = ["Loaded", "load", "save"]
