"""How XLA compiles programs that run once: quickly, since compiling them is what takes the time."""

from __future__ import annotations

import os

from parity.measure.versions.of_jax import quick_flags


def quickly() -> str:
    """Flags of XLA; for a ViT's backward pass on a CPU a third of the usual time. The code of a program
    is generated in one piece, by one thread: whoever compiles much has a process for every core."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in quick_flags().items())


def compile_quickly() -> None:
    """Add those to the flags of this process and of those that it starts; before JAX is imported."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly()}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
