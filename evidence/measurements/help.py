"""How soon `--help` of every command answers.

    python -m evidence.measurements.help [--beside FOLDER] [--repeat N]

Prints of each command the smallest wall time and CPU time of some runs, which other programs disturb
least; with another checkout also its own, measured by turns, and the median ratio of CPU times.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from evidence import ROOT
from parity.cli.dispatch import COMMANDS
from vit_config.errors import first_line


def main() -> None:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--beside", type=Path, default=None)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    folders = [ROOT] if arguments.beside is None else [arguments.beside, ROOT]
    words = [[], *([name] for name in COMMANDS)]
    commands = [["-m", "parity", *each] for each in words]
    commands += [["train.py", *each] for each in ([], ["plot"], ["eval"], ["predict"], ["preflight"])]
    for command in commands:
        runs = [[answer(command, folder) for folder in folders] for _ in range(arguments.repeat)]
        line = f"{' '.join(command):32}"
        for each in zip(*runs, strict=True):
            wall, cpu = map(min, zip(*each, strict=True))
            line += f"{wall:8.2f} s, CPU {cpu:.2f} s"
        if len(folders) == 2:
            line += f"{statistics.median(a[1] / b[1] for a, b in runs):8.1f} times as fast"
        print(line, flush=True)


def answer(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds until the help is printed, and CPU seconds."""
    environment = {**os.environ, "PYTHONPATH": str(folder.absolute())}
    start, used = time.perf_counter(), _children()
    subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start, _children() - used


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
