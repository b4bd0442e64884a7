"""Running all sides in turn, so that other load on the machine affects them alike.

A machine's speed drifts by a fifth within seconds, which hides a true difference of a tenth between
medians. So each run of a side is between two runs of the first side, and its ratio to these counts.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vit_config.other_python import command

PASSES = ("forward", "step")
_SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""All sides share one accelerator, three quarters of whose memory JAX would take at once."""


class Run(NamedTuple):
    """Times of one run of one pass."""

    seconds: float
    cpu_seconds: float


@dataclass
class Result:
    """The measurements of one side."""

    side: str
    error: str | None = None
    """Why the side did not run to the end."""
    device: str | None = None
    first_seconds: dict[str, float] = field(default_factory=dict)
    """Time of the first run of each pass, which compiles."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Time of every run of each pass but the first."""
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)
    """The same as CPU time of all threads, which other programs affect less."""
    ratios: dict[str, list[float]] = field(default_factory=dict)
    """Speed of every run of each pass, over that of the first side's two runs around it; for the
    first side itself, over its next run, which shows how much two runs of the same program differ."""
    cpu_ratios: dict[str, list[float]] = field(default_factory=dict)
    """The same for CPU time."""
    peak_bytes: int | None = None
    """Peak memory of the process, or of the accelerator, after all runs."""

    def median(self, which: str, *, cpu: bool = False) -> float | None:
        """Return the median run of a pass in seconds, or None."""
        runs = (self.cpu_seconds if cpu else self.seconds).get(which)
        return statistics.median(runs) if runs else None

    def ratio(self, which: str, *, cpu: bool = False) -> tuple[float, float, float] | None:
        """Return the lower quartile, the median and the upper quartile of a pass's ratios, or None."""
        ratios = (self.cpu_ratios if cpu else self.ratios).get(which)
        if not ratios:
            return None
        several = ratios if len(ratios) > 1 else ratios * 2
        low, middle, high = statistics.quantiles(several, method="inclusive")
        return low, middle, high

    def add(self, which: str, run: Run, before: Run, after: Run) -> None:
        """Note a run's ratios to two runs of the first side, whose geometric mean is free of drift."""
        for ratios, own, *around in (
            (self.ratios, run.seconds, before.seconds, after.seconds),
            (self.cpu_ratios, run.cpu_seconds, before.cpu_seconds, after.cpu_seconds),
        ):
            ratios.setdefault(which, []).append(statistics.geometric_mean(around) / own)


class Worker:
    """The process of one side."""

    def __init__(
        self,
        side: str,
        model: str,
        batch_size: int,
        dtype: str,
        python: Path | None = None,
        in_a_row: int = 1,
    ) -> None:
        self.result = Result(side)
        what = (side, model, str(batch_size), dtype, str(in_a_row))
        worker = command("evidence.bench.worker", *what, python=python)
        self._process = subprocess.Popen(
            worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | _SHARED,
        )  # fmt: skip
        reply = self._reply()
        self.result.device = reply.get("device")
        if python:
            self.result.side = f"{side}, {reply.get('library', python)}"

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        reply = json.loads(line) if line else {"error": f"ended with status {self._process.wait()}"}
        if "error" in reply:
            self.result.error = reply["error"]
        return reply

    def run(self, which: str) -> Run | None:
        """Run one pass once; return None for the first run, which compiles, and for a dead side."""
        if self.result.error is not None:
            return None
        assert self._process.stdin is not None
        self._process.stdin.write(which + "\n")
        self._process.stdin.flush()
        reply = self._reply()
        if "error" in reply:
            return None
        self.result.peak_bytes = reply["peak_bytes"]
        if which not in self.result.first_seconds:
            self.result.first_seconds[which] = reply["seconds"]
            return None
        run = Run(reply["seconds"], reply["cpu_seconds"])
        self.result.seconds.setdefault(which, []).append(run.seconds)
        self.result.cpu_seconds.setdefault(which, []).append(run.cpu_seconds)
        return run

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def measure(
    sides: Sequence[str],
    model: str,
    batch_size: int,
    repeats: int,
    dtype: str = "float32",
    progress: Callable[[str], None] = lambda text: None,
    beside: Path | None = None,
    in_a_row: int = 1,
) -> list[Result]:
    """Run each pass of each side `repeats` times after a first run, between two of the first side.

    Args:
        in_a_row: passes of one run, of which the last alone is waited for.
        beside: another interpreter, in which each side runs once more.
    """
    workers: list[Worker] = []
    try:
        for side in sides:
            progress(f"{side}: starts")
            workers.append(Worker(side, model, batch_size, dtype, None, in_a_row))
            if beside:
                workers.append(Worker(side, model, batch_size, dtype, beside, in_a_row))
        for which in PASSES:
            for worker in workers:
                progress(f"{which}, first run: {worker.result.side}")
                worker.run(which)
        first, *others = [each for each in workers if each.result.error is None] or workers
        for which in PASSES:
            before = first.run(which)
            for turn in range(1, repeats + 1):
                for worker in others or [first]:
                    progress(f"{which} {turn} of {repeats}: {worker.result.side}")
                    run = worker.run(which) if others else None
                    after = first.run(which)
                    if before and after:
                        first.result.add(which, before, after, after)
                        if run:
                            worker.result.add(which, run, before, after)
                    before = after
    finally:
        for worker in workers:
            worker.close()
    return [worker.result for worker in workers]


def machine() -> dict[str, Any]:
    """Describe the machine of the measurements: processor, cores, load, versions."""
    from importlib import metadata

    versions = {}
    for package in ("jax", "jaxlib", "flax", "torch", "timm", "transformers", "vit-pytorch"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.platform(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
