"""Reads training states of timm, Hugging Face's Trainer and Lightning.

Nothing in their files is executed.
"""

from __future__ import annotations

from parity.runs.foreign.read import read_foreign, recognise

__all__ = ["read_foreign", "recognise"]
