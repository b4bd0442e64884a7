"""What recording costs: the time of a training step with and without it, and its memory.

    python -m evidence.measurements.recording [--preset NAME] [--batch N] [--keep N] [--steps N]
                                              [--folder DIR] [--repeat N]

Trains in float32 with AdamW on random images, in processes of their own, and prints medians. The time of
a recorded step includes its share of what is written after the last step; the first step of each run,
which compiles, does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import parity
from vit_config import ViTConfig, preset
from vit_config.errors import first_line


def main() -> None:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--preset", default="vit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--keep", type=int, default=None)
    parser.add_argument("--steps", type=int, default=11, help="of one run, the first among them")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run", choices=["torch", "jax"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(measure(arguments)))
        return
    print(f"{arguments.preset}, {arguments.batch} images, AdamW; medians of {arguments.repeat} runs")
    for framework in ("torch", "jax"):
        command = [
            sys.executable,
            "-m",
            "evidence.measurements.recording",
            "--run",
            framework,
            *sys.argv[1:],
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        plain, recorded, size, memory, tensors = json.loads(done.stdout)
        print(
            f"{framework}: {plain:.2f} s a step, {recorded:.2f} s recorded, ratio"
            f" {recorded / plain:.2f}; {size / 2**20:.0f} MiB a step in the trace,"
            f" {memory:.0f} MiB more at the peak of memory; {tensors:.0f} tensors a step, each"
            f" {1e6 * (recorded - plain) / tensors:.0f} microseconds"
        )


def measure(arguments: argparse.Namespace) -> tuple[float, float, float, float, float]:
    """Seconds of a step without and with recording, bytes of a step in the trace, MiB of memory,
    tensors of a step."""
    make = torch_program if arguments.run == "torch" else jax_program
    model, optimizer, step = make(preset(arguments.preset), arguments.batch)
    plain, recorded, sizes = [], [], []
    timed(step, arguments.steps)
    before = peak()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for i in range(arguments.repeat):  # interleaved: what else the machine does hits both
            plain.append(timed(step, arguments.steps))
            path = Path(folder) / f"{i}.trace"
            recorder = parity.record(path, model, optimizer=optimizer, keep=arguments.keep)
            recorded.append(timed(step, arguments.steps, recorder.step, recorder))
            size = sum(file.stat().st_size for file in path.iterdir())
            sizes.append(size / arguments.steps)
            tensors = (path / "index.json").read_text().count('{"step":') / arguments.steps
            for file in path.iterdir():
                file.unlink()
    median = statistics.median
    return median(plain), median(recorded), median(sizes), peak() - before, tensors


def timed(
    step: Callable[[], Any], steps: int, each: Callable[[], Any] = nullcontext, whole: Any = None
) -> float:
    """Seconds of one step but the first, each within `each`, all within `whole`."""
    with whole or nullcontext():
        for i in range(steps):
            with each():
                step()
            if i == 0:
                start = time.perf_counter()
    return (time.perf_counter() - start) / (steps - 1)


def peak() -> float:
    """The most memory that this process has taken, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def images(cfg: ViTConfig, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (batch, *cfg.image_size, cfg.in_channels)
    return rng.standard_normal(shape, np.float32), rng.integers(0, cfg.num_classes, batch)


def torch_program(cfg: ViTConfig, batch: int) -> tuple[Any, Any, Callable[[], Any]]:
    import torch

    from vit_torch import ViT

    model = ViT(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = map(torch.from_numpy, images(cfg, batch))
    x = x.permute(0, 3, 1, 2).contiguous()

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x).logits, y).backward()
        optimizer.step()

    return model, optimizer, step


def jax_program(cfg: ViTConfig, batch: int) -> tuple[Any, Any, Callable[[], Any]]:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import optax
    from flax import nnx

    from vit_jax import ViT

    model = ViT(cfg, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-4), wrt=nnx.Param)
    x, y = map(jax.numpy.asarray, images(cfg, batch))

    @nnx.jit
    def update(model: ViT, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> jax.Array:
        def loss_fn(model: ViT) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(model(x).logits, y).mean()

        loss, gradients = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, gradients)
        return loss

    return model, optimizer, lambda: update(model, optimizer, x, y).block_until_ready()


if __name__ == "__main__":
    main()
