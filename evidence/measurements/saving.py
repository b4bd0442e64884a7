"""What digests cost where they are computed beside the write of a checkpoint.

    python -m evidence.measurements.saving [--mib 256] [--rounds 9] [--folder DIR]

Saves a state of random float32 tensors with digests and without, in turns, and gives the medians of the
time until all is on the disk, of that until `save` returns, and of CPU time; what the digests add, and
what they take by themselves, which is the most that they can add.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from vit_jax.train import checkpoint
from vit_jax.train.digests import digest


def without(named: Mapping[str, Any]) -> Any:
    """A description of no digests."""
    return lambda: {name: [list(x.shape), str(x.dtype), ""] for name, x in named.items()}


def save(folder: Path, step: int, state: dict[str, np.ndarray]) -> dict[str, float]:
    """Seconds that one checkpoint takes."""
    begun, worked = time.perf_counter(), time.process_time()
    with checkpoint.Checkpoints(folder, run_id="measured", keep=1) as checkpoints:
        opened = time.perf_counter()
        checkpoints.save(step, state)
        returned = time.perf_counter() - opened
    return {
        "all on the disk": time.perf_counter() - begun,
        "save returns": returned,
        "CPU": time.process_time() - worked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    state = {f"w{i}": rng.standard_normal((1024, 1024), np.float32) for i in range(options.mib // 4)}
    times: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        for turn in range(options.rounds + 1):
            for how in ("with", "without") if turn % 2 else ("without", "with"):
                describe = checkpoint.describe if how == "with" else without
                with mock.patch.object(checkpoint, "describe", describe):
                    took = save(folder / f"{how}{turn}", 1, state)
                shutil.rmtree(folder / f"{how}{turn}")
                if turn:  # the first warms up
                    times[how].append(took)
    finally:
        shutil.rmtree(folder)
    print(f"{options.mib} MiB, medians of {options.rounds}, in turns")
    for what in times["with"][0]:
        ours, theirs = (statistics.median(each[what] for each in times[how]) for how in times)
        ratio = statistics.median(
            a[what] / b[what] - 1 for a, b in zip(times["with"], times["without"], strict=True)
        )
        print(f"{what:<16} {ours:.2f} s, without digests {theirs:.2f} s; pair by pair {ratio:+.1%}")
    alone = []
    for _ in range(options.rounds):
        worked = time.process_time()
        for array in state.values():
            digest(array)
        alone.append(time.process_time() - worked)
    seconds = statistics.median(alone)
    saving = statistics.median(each["all on the disk"] for each in times["without"])
    print(f"digests alone    {seconds:.3f} s of CPU time on one core, {seconds / saving:.1%} of saving")


if __name__ == "__main__":
    main()
