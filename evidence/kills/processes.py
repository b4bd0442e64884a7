"""Several processes on this machine that train together, and of which one is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np

from evidence import ROOT
from evidence.kills.runs import MODEL, count_lines
from parity.measure.compiling import quickly

DEVICES = 4
DEAD_AFTER = 10
"""Seconds; the program's own are 60."""
MEET_IN = 60
"""Seconds; JAX's own are 300."""
STEPS = 48
JOB = f"""{MODEL}
depth = 1
qkv_bias = false

[recipe]
dtype = "float64"
epochs = 60
batch_size = 8
learning_rate = 1e-4
warmup_epochs = 1.0
weight_decay = 0.05
clip_norm = 1.0
ema = 0.9
validation_fraction = 0.2
eval_every_epochs = 4
checkpoint_every_epochs = 2
log_every_steps = 1

[recipe.mix]
mixup = 0.8
"""
# JAX keeps what the first process compiled alone; on CPUs each compiles another program
START = f"""
import sys
from functools import partial
from types import SimpleNamespace
from jax._src import compiler
compiler.distributed = SimpleNamespace(global_state=SimpleNamespace(process_id=0))
import vit_jax.train.hosts as hosts
hosts.DEAD_AFTER = {DEAD_AFTER}
hosts.jax.distributed.initialize = partial(
    hosts.jax.distributed.initialize, initialization_timeout={MEET_IN}
)
from parity.cli.train import main
sys.exit(main(sys.argv[1:]))
"""
TOO_SLOW = (
    "Gloo connectFullMesh failed",
    "Gloo context initialization failed",
    "DEADLINE_EXCEEDED",
    "stopped sending heartbeats",
)
"""Messages of a process where others, or it, got no time on the machine."""


class Processes:
    """A run in a folder, which some processes do together."""

    def __init__(self, folder: Path, run_dir: Path) -> None:
        self.folder, self.run_dir = folder, run_dir
        self._argv = ["--config", str(folder / "job.toml"), "--data", f"folder:{folder / 'images'}"]
        self._argv += ["--mesh", "data=2,fsdp=2", "--best", "loss", "--run-dir", str(run_dir)]
        self._argv += ["--stop-after", str(STEPS)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._said: list[Path] = []
        self.apart = 0
        """Number of times the processes lost each other, though none was killed."""

    def start(self, count: int) -> None:
        """Go on with so many processes."""
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{quickly()} --xla_force_host_platform_device_count={DEVICES // count}",
            "OMP_NUM_THREADS": "1",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        with socket.socket() as free:
            free.bind(("localhost", 0))
            coordinator = f"localhost:{free.getsockname()[1]}"
        self.processes = []
        self._said = [self.folder / f"{self.run_dir.name}-{number}.txt" for number in range(count)]
        for number, file in enumerate(self._said):
            own = ["--coordinator", coordinator, "--process", f"{number}/{count}"] if count > 1 else []
            with file.open("wb") as said:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-c", START, *self._argv, *own],
                        cwd=ROOT, env=environment, stdout=said, stderr=said,
                    )
                )  # fmt: skip

    @property
    def lines(self) -> int:
        """Number of lines of its log."""
        return count_lines(self.run_dir)

    @property
    def running(self) -> bool:
        """Whether none has ended."""
        return all(process.poll() is None for process in self.processes)

    def finish(self, count: int) -> tuple[float, float]:
        """Go on to the end.

        Returns:
            Seconds to the second line of the log, and from there.

        Raises:
            SystemExit: one of them ends with an error.
        """
        while True:
            begun = time.monotonic()
            self.start(count)
            while self.running and self.lines < 2:
                time.sleep(0.1)
            trains = time.monotonic()
            if not any([process.wait() for process in self.processes]):
                return trains - begun, time.monotonic() - trains
            self._expect_apart("did not come to the end")

    def _expect_apart(self, otherwise: str) -> None:
        """Some ended by themselves: they lost each other, and may be started again.

        Raises:
            SystemExit: that is not the reason, or the machine is too busy.
        """
        self.apart += 1
        if self.apart > 20 or not any(
            words in file.read_text() for file in self._said for words in TOO_SLOW
        ):
            self.give_up(otherwise)

    def give_up(self, why: str) -> NoReturn:
        """Kill all, say what they said, and end with status 1."""
        for process in self.processes:
            process.kill()
        said = [path.read_text() for path in self._said]
        sys.exit("\n".join([f"{self.run_dir.name}: {why}", *said]))

    def kill_one(self, count: int, rng: np.random.Generator, starting: float, pause: float) -> str:
        """Go on, and kill one of them while they start or after some steps.

        Returns:
            Where it was: "start", "training", "end" if the run was faster, or "apart" if they lost
            each other, though none was killed.
        """
        begun = self.lines
        self.start(count)
        early = rng.random() < 0.2
        while not early and self.running and self.lines <= begun + 1:
            begun = min(begun, self.lines)  # lines after the last checkpoint are taken back
            time.sleep(0.1)
        time.sleep(rng.uniform(0, starting) if early else rng.uniform(0, 2 * pause))
        victim = self.processes[rng.integers(count)]
        if unhurt := self.running:
            victim.send_signal(signal.SIGKILL)
        self._await_all()
        if all(process.returncode == 0 for process in self.processes):
            return "end"
        if not unhurt or victim.returncode not in (0, -signal.SIGKILL):
            self._expect_apart("ended before one was killed")
            return "apart"
        return "start" if early else "training"

    def _await_all(self) -> None:
        """The others notice by themselves; who waits for the first contact waits longer."""
        until = time.monotonic() + 300
        while any(process.poll() is None for process in self.processes):
            if time.monotonic() > until:
                self.give_up("outlives a process that was killed")
            time.sleep(0.1)
