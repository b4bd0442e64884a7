"""XLA flags for programs that run once: compiling them quickly is what saves time."""

from __future__ import annotations

import os

from parity.measure.versions.of_jax import quick_flags


def quickly() -> str:
    """Return XLA flags that cut compilation, of a ViT's backward pass on a CPU to a third. XLA then
    generates a program's code in one piece, on one thread: compile many programs in one process per
    core."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in quick_flags().items())


def compile_quickly() -> None:
    """Add these flags to the environment, which child processes inherit; call before importing JAX."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly()}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
