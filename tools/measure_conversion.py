"""Memory and speed of converting a large checkpoint, measured in processes of their own.

    python tools/measure_conversion.py [--preset NAME] [--to DIALECT] [--folder DIR] [--repeat N]

Writes a checkpoint of random weights in timm's names, copies it, converts it, and prints medians: the
peak of resident memory above that of the imports, and the time against that of copying the file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from parity.containers import Stored, write_safetensors
from vit_config import preset
from vit_config.parameters import parameters

CONVERT = """
import json, resource, sys, time
import parity.commands.convert, parity.conversion, parity.dialects
from parity.checkpoint import read_checkpoint
parity.dialects.dialects()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
imports = peak()
source, out, to, like = sys.argv[1:]
start = time.perf_counter()
result = parity.conversion.convert(read_checkpoint(source, like=like), to=to, out=out)
print(json.dumps([time.perf_counter() - start, imports, peak(), result.nbytes]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="vit_giant_patch14_dinov2")
    parser.add_argument("--to", default="hf")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measure(Path(folder), arguments.preset, arguments.to, arguments.repeat)


def measure(folder: Path, name: str, to: str, repeat: int) -> None:
    """Print the medians of some interleaved runs."""
    source = folder / "source.safetensors"
    count = write_random(source, name)
    print(f"{name}: {count:,} parameters, {source.stat().st_size / 2**30:.2f} GiB; to {to}")
    copies, conversions, memory = [], [], []
    for _ in range(repeat):
        copies.append(copy(source, folder / "copy.safetensors"))
        seconds, imports, peak = convert(source, folder / "converted", to, name)
        conversions.append(seconds)
        memory.append(peak - imports)
        shutil.rmtree(folder / "converted")
    copied, converted = statistics.median(copies), statistics.median(conversions)
    print(f"copy, flushed to the disk: {copied:.1f} s; convert: {converted:.1f} s")
    print(f"speed of converting: {copied / converted:.2f} of copying")
    print(f"peak resident memory above the imports: {statistics.median(memory):.0f} MiB")


def write_random(path: Path, name: str) -> int:
    """Write a preset's parameters, random; return how many numbers they are."""
    rng = np.random.default_rng(0)

    def stored(shape: tuple[int, ...]) -> Stored:
        load = lambda: rng.standard_normal(shape, np.float32)  # noqa: E731
        return Stored(shape, np.dtype(np.float32), load)

    shapes = {name: each.shape for name, each in parameters(preset(name)).items()}
    tensors = {name: stored(shape) for name, shape in shapes.items()}
    write_safetensors(path, tensors, {}, sealed=False)
    return sum(int(np.prod(shape)) for shape in shapes.values())


def copy(source: Path, target: Path) -> float:
    """Seconds that copying a file takes, until it is on the disk."""
    start = time.perf_counter()
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    target.unlink()
    return seconds


def convert(source: Path, target: Path, to: str, like: str) -> tuple[float, float, float]:
    """Seconds, and resident memory in MiB after the imports and at the peak."""
    command = [sys.executable, "-c", CONVERT, str(source), str(target), to, like]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, imports, peak, _ = json.loads(done.stdout)
    return seconds, imports, peak


if __name__ == "__main__":
    main()
