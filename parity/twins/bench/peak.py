"""What this machine's products of matrices reach, by the fastest library that is here.

``python -m parity.twins.bench.peak LIBRARY`` times one, in a process of its own, and prints FLOP/s: none
is the fastest everywhere, as numpy's may be held to older instructions than the processor has.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from vit_config.terminal import say

LIBRARIES = ("numpy", "torch", "jax")
SIZES = (512, 1024, 2048)
REPEATS = 5


def peak_flops() -> tuple[float, str]:
    """FLOP/s of the fastest product of two float32 matrices, and whose it is."""
    found = {name: _of(name) for name in LIBRARIES if find_spec(name)}
    best = max(found, key=lambda name: found[name])
    return found[best], best


def _of(library: str) -> float:
    command = [sys.executable, "-m", "parity.twins.bench.peak", library]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else 0.0


def fastest(library: str, sizes: tuple[int, ...] = SIZES, repeats: int = REPEATS) -> float:
    """FLOP/s of the fastest of a few products by one library, on the device that it computes on."""
    best = 0.0
    for size in sizes:
        run = _product(library, np.ones((size, size), np.float32))
        run()  # compiles, and starts threads
        for _ in range(repeats):
            started = time.perf_counter()
            run()
            best = max(best, 2.0 * size**3 / (time.perf_counter() - started))
    return best


def _product(library: str, a: np.ndarray) -> Callable[[], Any]:
    if library == "numpy":
        return lambda: np.matmul(a, a)
    if library == "torch":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        matrix = torch.from_numpy(a).to(device)
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        return lambda: (matrix @ matrix, wait())
    import jax

    operand, product = jax.device_put(a), jax.jit(lambda x: x @ x)
    return lambda: product(operand).block_until_ready()


if __name__ == "__main__":
    say(fastest(sys.argv[1]))
