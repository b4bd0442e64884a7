"""Peak FLOP/s of matrix products on this machine, by the fastest library that is installed.

``python -m evidence.bench.peak LIBRARY DTYPE`` times one library in a process of its own, and
prints FLOP/s. None is the fastest everywhere, as numpy may use older instructions than the
processor has.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from evidence.bench.sides import Dtype
from vit_config import ConfigError
from vit_config.terminal import say

LIBRARIES = ("numpy", "torch", "jax")
SIZES = (512, 1024, 2048)
LARGE = (4096, 8192)
"""Edges of matrices that keep an accelerator busy."""
REPEATS = 5
SLOW = 0.5
"""Seconds of one product after which no larger one is tried."""


def peak_flops(dtype: Dtype = "float32") -> tuple[float, str]:
    """Return the FLOP/s of the fastest product of two matrices, and the library that computed it."""
    speeds = {name: _of(name, dtype) for name in LIBRARIES if find_spec(name)}
    best = max(speeds, key=lambda name: speeds[name])
    return speeds[best], best


def _of(library: str, dtype: Dtype) -> float:
    command = [sys.executable, "-m", "evidence.bench.peak", library, dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else 0.0


def fastest(library: str, dtype: Dtype, sizes: tuple[int, ...] = SIZES, repeats: int = REPEATS) -> float:
    """Return the FLOP/s of the fastest of a few products by one library, on the device it computes on.

    Args:
        sizes: edges of square matrices; an accelerator multiplies the `LARGE` ones, too.
    """
    best, stream = 0.0, np.random.default_rng(0)
    place, accelerated = _PLACES[library](dtype)
    for size in (*sizes, *(LARGE if accelerated else ())):
        run = place(stream.standard_normal((size, size), np.float32))
        run()  # compiles, and starts threads
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            seconds = time.perf_counter() - started
            best = max(best, 2.0 * size**3 / seconds)
            if seconds > SLOW:  # no instructions for the type: larger ones tell no more
                return best
    return best


Place = Callable[[np.ndarray], Callable[[], Any]]
"""Moves a matrix to the device; returns a function that squares it and waits for the product."""


def _numpy(dtype: Dtype) -> tuple[Place, bool]:
    if dtype == "bfloat16":
        raise ConfigError("numpy has no bfloat16; PyTorch and JAX have")
    return lambda matrix: lambda: np.matmul(matrix, matrix), False


def _torch(dtype: Dtype) -> tuple[Place, bool]:
    import torch

    cuda = torch.cuda.is_available()
    torch.set_float32_matmul_precision("highest" if dtype == "float32" else "high")
    wait = torch.cuda.synchronize if cuda else lambda: None
    kind = torch.bfloat16 if dtype == "bfloat16" else torch.float32

    def place(matrix: np.ndarray) -> Callable[[], Any]:
        a = torch.from_numpy(matrix).to("cuda" if cuda else "cpu", kind)
        return lambda: (a @ a, wait())

    return place, cuda


def _jax(dtype: Dtype) -> tuple[Place, bool]:
    import jax
    import jax.numpy as jnp

    precision = "highest" if dtype == "float32" else "default"
    product = jax.jit(lambda a: jnp.matmul(a, a, precision=precision))
    kind = jnp.bfloat16 if dtype == "bfloat16" else jnp.float32

    def place(matrix: np.ndarray) -> Callable[[], Any]:
        a = jax.device_put(matrix.astype(kind))
        return lambda: product(a).block_until_ready()

    return place, jax.default_backend() != "cpu"


_PLACES = {"numpy": _numpy, "torch": _torch, "jax": _jax}


if __name__ == "__main__":
    say(fastest(sys.argv[1], cast(Dtype, sys.argv[2])))
