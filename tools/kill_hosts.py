"""Kill one of several processes that train together, again and again, and go on with all of them.

    python tools/kill_hosts.py [--kills 100] [--processes 2 4] [--seed 0] [--folder DIR [--write]]

Real processes on this machine, over Gloo, four emulated devices between them on data=2,fsdp=2, in
float64: dropout, mixup, clipping, an average, a best checkpoint. For each number of processes one run
is not disturbed. In another, one process at random is killed (SIGKILL) at a random moment, while it
starts, trains, saves or evaluates; the others have to end by themselves, as no sign of life comes from
it (after 10 seconds here); all are started again. Half of the kills are of runs that always go on with
as many processes, which have to end with every bit of parameters, moments, average and log the same. In
the other half one, two or four go on, chosen at random each time, and every tensor has to be the same
to 1e-10 of its norm, as sums are taken in another order. Kills count once their run has come to its end
and was compared, and are printed then. With --folder what was done is kept, and the same command goes on
where it ended; --write makes docs/killed_hosts.md of it.

Programs are compiled once, with the least effort: a start takes three seconds of CPU time a process.
On a busy machine the processes may not find each other in the 30 seconds that Gloo gives them, or be
stopped for longer than a sign of life may take; that is no kill, is counted, and they are started again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from kill_ledger import PAGE, Ledger, kills_of, page
from kill_runs import MODEL, count_lines, differences, write_images

from parity.measure.compiling import QUICKLY
from parity.runs.folder import read_run

ROOT = Path(__file__).parents[1]
DEVICES = 4
COUNTS = (1, 2, 4)
DEAD_AFTER = 10
"""Seconds; the program's own are 60."""
MEET_IN = 60
"""Seconds; JAX's own are 300."""
STEPS = 48
CLOSE = 1e-10
MOST = 8
"""Kills of one run."""
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
import train
sys.exit(train.main(sys.argv[1:]))
"""
TOO_SLOW = (
    "Gloo connectFullMesh failed",
    "Gloo context initialization failed",
    "DEADLINE_EXCEEDED",
    "stopped sending heartbeats",
)
"""What a process says where others, or it, got no time on the machine."""


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
        """How often the processes lost each other, though none was killed."""

    def start(self, count: int) -> None:
        """Go on with so many processes."""
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{QUICKLY} --xla_force_host_platform_device_count={DEVICES // count}",
            "OMP_NUM_THREADS": "1",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        with socket.socket() as found:
            found.bind(("localhost", 0))
            coordinator = f"localhost:{found.getsockname()[1]}"
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
        """How many lines its log has."""
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


def far(one: Path, other: Path) -> list[str]:
    """Tensors of two runs that differ by more than sums in another order."""
    states = [read_run(folder).state for folder in (one, other)]
    if states[0].step != states[1].step:
        return [f"step {states[0].step} and {states[1].step}"]
    ours, theirs = (state.parts() for state in states)
    return [
        f"{part}: {name}"
        for part, arrays in theirs.items()
        for name, ref in arrays.items()
        if np.linalg.norm(np.asarray(ours[part][name]) - ref) > CLOSE * np.linalg.norm(ref)
    ]


class Way:
    """Runs that begin with some number of processes, and go on with that or another number.

    Args:
        others: how many go on after a kill, one of these at random.
        whole: the run that nobody disturbed.
        starting: seconds to its first step.
        pause: seconds of training between two kills, on average.
        ledger: where runs that were compared are noted.
    """

    def __init__(
        self,
        count: int,
        others: Sequence[int],
        whole: Processes,
        starting: float,
        pause: float,
        ledger: Ledger,
    ) -> None:
        self.count, self.others, self._whole = count, others, whole
        self._starting, self._pause, self._ledger = starting, pause, ledger

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its runs so far."""
        return self._ledger.of(self.count, self.others)

    @property
    def kills(self) -> int:
        """How many there were, of runs that were compared."""
        return sum(map(kills_of, self.rows))

    def kill_run(self, most: int, rng: np.random.Generator) -> None:
        """One run, killed at most so often; compared at its end.

        Raises:
            SystemExit: it came to another end than the one that nobody disturbed.
        """
        name = f"broken{self.count}-{len(self.others)}-{len(self.rows) + 1}"
        broken = fresh(self._whole.folder, name)
        places: Counter[str] = Counter()
        numbers: Counter[int] = Counter()
        place, going = "", self.count
        while place != "end" and sum(numbers.values()) < most:
            place = broken.kill_one(going, rng, self._starting, self._pause)
            places[place] += 1
            numbers[going] += place in ("start", "training")
            going = int(rng.choice(self.others))
        broken.finish(going)
        compare = differences if len(self.others) == 1 else far
        if found := compare(broken.run_dir, self._whole.run_dir):
            sys.exit("\n".join([f"{broken.run_dir.name} is not the same:", *found]))
        shutil.rmtree(broken.run_dir)
        by = {str(number): times for number, times in numbers.items()}
        others = list(self.others)
        self._ledger.add(count=self.count, others=others, places=places, numbers=by, apart=broken.apart)

    def __str__(self) -> str:
        numbers, places = Counter[str](), Counter[str]()
        for row in self.rows:
            numbers.update(row["numbers"])
            places.update(row["places"], lost=row["apart"])
        by = ", ".join(f"{times} of {number}" for number, times in sorted(numbers.items()))
        same = "every bit" if len(self.others) == 1 else f"every tensor to {CLOSE:g}"
        apart = f", {places['lost']} times apart" if places["lost"] else ""
        return (
            f"{self.count} processes, then {' or '.join(map(str, self.others))}: {self.kills} kills in"
            f" {len(self.rows)} runs ({by}), {places['start']} while starting{apart}; {same} as nobody"
            " had killed any"
        )


def fresh(folder: Path, name: str) -> Processes:
    """A run from its start, whatever was in its folder."""
    shutil.rmtree(folder / name, ignore_errors=True)
    return Processes(folder, folder / name)


def kill_hosts(folder: Path, kills: int, counts: Sequence[int], seed: int) -> list[str]:
    """Kill so many processes, those that the folder tells of among them; a sentence on each way.

    Raises:
        SystemExit: a run came to another end than the one that nobody disturbed.
    """
    ledger = Ledger(folder)
    if not (folder / "images").is_dir():
        write_images(folder / "images")
    (folder / "job.toml").write_text(JOB)
    rng, ways = np.random.default_rng([seed, len(ledger.rows)]), []
    (alone := Processes(folder, folder / "alone")).finish(1)
    for count in counts:
        whole = Processes(folder, folder / f"whole{count}")
        whole.finish(
            count
        )  # compiles, which those that are killed need not; of before, is left as it is
        if found := far(whole.run_dir, alone.run_dir):
            sys.exit("\n".join([f"{count} processes are not one:", *found]))
        again = fresh(folder, f"again{count}")
        starting, training = again.finish(count)
        if found := differences(again.run_dir, whole.run_dir):
            sys.exit("\n".join([f"{count} processes are not the same again:", *found]))
        ways += [
            Way(count, others, whole, starting, training / 6, ledger) for others in ((count,), COUNTS)
        ]
    wanted = -(-kills // len(ways))
    while short := [way for way in ways if way.kills < wanted]:
        for way in short:
            way.kill_run(min(MOST, wanted - way.kills), rng)
            print(way, flush=True)
    return [str(way) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4], choices=[2, 4])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where what was done is kept, and goes on")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} of it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).absolute()
        ways = kill_hosts(folder, options.kills, options.processes, options.seed)
        if options.write:
            PAGE.write_text(page(Ledger(folder), ways))


if __name__ == "__main__":
    main()
