"""Memory and speed of converting a large checkpoint, measured in processes of their own.

    python -m evidence.measurements.conversion [--preset NAME] [--to DIALECT] [--folder DIR] [--repeat N]

Writes a checkpoint of random weights in timm's names, copies it, converts it, and prints medians: the
peak of resident memory above that of the imports, and the time against that of copying the file. Both
end when the file is on the disk. A conversion is compared with the copies right before and after it.
Where other programs take their share of the time, compare the seconds of the cores.
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
from itertools import pairwise
from pathlib import Path

import numpy as np

from parity.porting.formats import Stored
from vit_config import preset
from vit_config.errors import first_line
from vit_config.files.atomic import atomic_file
from vit_config.files.safetensors_stream import write_stream
from vit_config.parameters import parameters

CONVERT = """
import json, os, re, sys, time
import parity.cli.convert, parity.porting.writing.conversion, parity.porting.dialects
from parity.porting.reading.checkpoint import read_checkpoint
parity.porting.dialects.dialects()
# not ru_maxrss, which a process inherits from the larger one that started it
peak = lambda: int(re.search("VmHWM: *(.*) kB", open("/proc/self/status").read().expandtabs())[1]) / 1024
imports = peak()
source, out, to, like = sys.argv[1:]
cores = lambda: sum(os.times()[:2])
start, used = time.perf_counter(), cores()
parity.porting.writing.conversion.convert(read_checkpoint(source, like=like), to=to, out=out)
print(json.dumps([time.perf_counter() - start, cores() - used, imports, peak()]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--preset", default="vit_giant_patch14_dinov2")
    parser.add_argument("--to", default="hf")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measure(Path(folder), arguments.preset, arguments.to, arguments.repeat)


def measure(folder: Path, name: str, to: str, repeat: int) -> None:
    """Print the medians of some interleaved runs."""
    source = folder / "source.safetensors"
    count = write_random(source, name)
    print(f"{name}: {count:,} parameters, {source.stat().st_size / 2**30:.2f} GiB; to {to}")
    copies, conversions = [copy(source, folder / "copy.safetensors")], []
    for _ in range(repeat):
        conversions.append(convert(source, folder / "converted", to, name))
        shutil.rmtree(folder / "converted")
        copies.append(copy(source, folder / "copy.safetensors"))
    around = [statistics.geometric_mean(each) for each in pairwise(seconds for seconds, _ in copies)]
    ratios = [copied / converted[0] for copied, converted in zip(around, conversions, strict=True)]
    copied, copied_cores = map(statistics.median, zip(*copies, strict=True))
    converted, cores, memory = map(statistics.median, zip(*conversions, strict=True))
    print(f"copy, flushed to the disk: {copied:.1f} s, {copied_cores:.1f} s of the cores")
    print(f"convert: {converted:.1f} s, {cores:.1f} s of the cores")
    said = f"{statistics.median(ratios):.2f} of copying, {min(ratios):.2f} to {max(ratios):.2f}"
    print(f"speed of converting: {said}")
    print(f"peak resident memory above the imports: {memory:.0f} MiB")


def write_random(path: Path, name: str) -> int:
    """Write a preset's parameters, random; return how many numbers they are."""
    rng = np.random.default_rng(0)

    def stored(shape: tuple[int, ...]) -> Stored:
        load = lambda: rng.standard_normal(shape, np.float32)  # noqa: E731
        return Stored(shape, np.dtype(np.float32), load)

    shapes = {name: each.shape for name, each in parameters(preset(name)).items()}
    tensors = {name: stored(shape) for name, shape in shapes.items()}
    with atomic_file(path) as file:
        write_stream(file, tensors, {}, sealed=False)
    return sum(int(np.prod(shape)) for shape in shapes.values())


def copy(source: Path, target: Path) -> tuple[float, float]:
    """Seconds that copying a file takes until it is on the disk, and seconds of the cores."""
    start, used = time.perf_counter(), sum(os.times()[:2])
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    seconds, cores = time.perf_counter() - start, sum(os.times()[:2]) - used
    target.unlink()
    return seconds, cores


def convert(source: Path, target: Path, to: str, like: str) -> tuple[float, float, float]:
    """Seconds, seconds of the cores, and the peak of resident memory above the imports in MiB."""
    command = [sys.executable, "-c", CONVERT, str(source), str(target), to, like]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, cores, imports, peak = json.loads(done.stdout)
    return seconds, cores, peak - imports


if __name__ == "__main__":
    main()
