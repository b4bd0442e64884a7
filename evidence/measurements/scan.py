"""What it takes to compile a training step, by depth, with the blocks as a loop and one by one.

    python -m evidence.measurements.scan [--topology v5e:1x1] [--depths 12 48] [--scan on off]
                                         [--remat none]
    python -m evidence.measurements.scan --steps 9 [--depths 12 48] [--width 192] [--image 224]

Each program is compiled in a process of its own, for a model of ViT-Ti/16's width, 8 images and AdamW
with clipping: CPU seconds of tracing, lowering and compiling (over all cores), those of the initial
state, and XLA's own count of temporaries.

With --steps, what a step takes on this machine, in turns with the loop and without: medians of CPU
seconds over all cores, and of the quotients pair by pair.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from evidence import ROOT

BATCH = 8


def measure(topology: str, depth: int, scan: str, remat: str, dtype: Any) -> dict[str, float]:
    """Compile one step here and now."""
    import jax

    from vit_config import Recipe, preset
    from vit_config.job import Job
    from vit_jax.train.preflight import fly
    from vit_jax.train.topology import get_topology

    recipe = Recipe(dtype=dtype, batch_size=BATCH, clip_norm=1.0)
    job = Job(preset("vit_tiny_patch16_224").replace(depth=depth), recipe)
    how = {"mesh": "data=1", "parallel": "jit", "scan": scan, "remat": remat}
    jax.config.update("jax_enable_compilation_cache", False)
    flight = fly(job, get_topology(topology), how, BATCH, limit=float("inf"))
    assert flight.memory is not None
    return {"cpu": flight.cpu_seconds, "temporaries": flight.memory.temporaries / 2**20}


def measure_steps(depth: int, width: int, image: int, steps: int) -> str:
    """Run so many steps each way, here and now; a line."""
    import jax
    import numpy as np

    from vit_config import Recipe, preset
    from vit_jax.host_memory import keep_freed_memory
    from vit_jax.scanned import Loop
    from vit_jax.train.spread import make_program

    keep_freed_memory()
    shape = {"hidden_size": width, "mlp_dim": 4 * width, "num_heads": width // 64}
    cfg = preset("vit_tiny_patch16_224").replace(depth=depth, image_size=(image, image), **shape)
    recipe = Recipe(batch_size=BATCH, clip_norm=1.0)
    images = np.random.default_rng(0).standard_normal((BATCH, image, image, 3), np.float32)
    batch = {"image": images, "label": np.arange(BATCH, dtype=np.int32)}
    programs, states, seconds = {}, {}, {True: [], False: []}
    for scan in seconds:
        how: Any = {"devices": jax.devices()[:1], "loop": Loop(scan)}
        programs[scan] = program = make_program(cfg, recipe, 100, **how)
        states[scan] = program.initialise()
    for step in range(-1, steps):  # the first compiles
        for scan in sorted(seconds, reverse=bool(step % 2)):
            placed = programs[scan].place_batch(batch)
            began = time.process_time()
            states[scan], _ = jax.block_until_ready(programs[scan].train_step(states[scan], placed))
            seconds[scan] += [time.process_time() - began] if step >= 0 else []
    with_loop, without = (statistics.median(seconds[scan]) for scan in (True, False))
    pairs = statistics.median(a / b for a, b in zip(seconds[True], seconds[False], strict=True))
    return (
        f"{depth} blocks, {width} wide, {image}x{image}: {with_loop:.3f} s CPU a step with the loop,"
        f" {without:.3f} s without; pair by pair {pairs - 1:+.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--topology", default="local")
    parser.add_argument("--depths", type=int, nargs="+", default=[12, 48])
    parser.add_argument("--scan", nargs="+", default=["on", "off"])
    parser.add_argument("--remat", default="none")
    parser.add_argument("--steps", type=int, default=0, help="run so many each way instead")
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*json.loads(options.one))))
        return
    if options.steps:
        for depth in options.depths:
            print(measure_steps(depth, options.width, options.image, options.steps), flush=True)
        return
    local = options.topology == "local"
    dtype = "float32" if local else "bfloat16"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    if not local:
        environment["JAX_PLATFORMS"] = "cpu"  # nothing runs
    for scan in options.scan:
        seconds = []
        for depth in options.depths:
            given = json.dumps([options.topology, depth, scan, options.remat, dtype])
            command = [sys.executable, "-m", "evidence.measurements.scan", "--one", given]
            result = json.loads(subprocess.check_output(command, env=environment))
            seconds.append(result["cpu"])
            print(
                f"{options.topology}  {dtype}  scan {scan:3}  remat {options.remat}  {depth} blocks:"
                f" {result['cpu']:5.1f} s CPU, temporaries {result['temporaries']:,.0f} MiB",
                flush=True,
            )
        print(
            f"{options.topology}  scan {scan}: {seconds[-1] / seconds[0]:.2f} times as long", flush=True
        )


if __name__ == "__main__":
    main()
