"""Every test sees eight CPU devices, 32-bit JAX unless it asks for `x64`, and no warning."""

import os

# eight devices, and code that is quick to compile rather than quick to run: the suite mostly compiles
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8"
    " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest-xdist runs one process per core

import jax
import pytest


@pytest.fixture
def x64():
    """JAX with 64-bit types for one test."""
    with jax.enable_x64(True):
        yield
