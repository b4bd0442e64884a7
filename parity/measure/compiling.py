"""How XLA compiles programs that run once: quickly, since compiling them is what takes the time."""

from __future__ import annotations

import os

QUICKLY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""Flags of XLA; for a ViT's backward pass on a CPU a third of the usual time. The code of a program is
generated in one piece, by one thread: whoever compiles much has a process for every core."""


def compile_quickly() -> None:
    """Add `QUICKLY` to the flags of this process and of those that it starts; before JAX is imported."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
