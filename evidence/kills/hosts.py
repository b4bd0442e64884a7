"""Kill one of several processes that train together, again and again, and go on with all of them.

    python -m evidence.kills.hosts [--kills 100] [--processes 2 4] [--seed 0] [--folder DIR [--write]]

Real processes on this machine, over Gloo, four emulated devices between them on data=2,fsdp=2, in
float64: dropout, mixup, clipping, an average, a best checkpoint. For each number of processes one run
is not disturbed. In another, one process at random is killed (SIGKILL) at a random moment, while it
starts, trains, saves or evaluates; the others have to end by themselves, as no sign of life comes from
it (after 10 seconds here); all are started again. Half of the kills are of runs that always go on with
as many processes, which have to end with every bit of parameters, moments, average and log the same. In
the other half one, two or four go on, chosen at random each time, and every tensor has to be the same
to 1e-12 of its norm, as sums are taken in another order. Kills count once their run has come to its end
and was compared, and are printed then. With --folder what was done is kept, and the same command goes on
where it ended; --write makes docs/killed_hosts.md of it, with --kills 0 of what there is.

Programs are compiled once, with the least effort: a start takes three seconds of CPU time a process.
On a busy machine the processes may not find each other in the 30 seconds that Gloo gives them, or be
stopped for longer than a sign of life may take; that is no kill, is counted, and they are started again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evidence.kills.ledger import CLOSE, PAGE, Ledger, kills_of, page, sentence
from evidence.kills.processes import JOB, Processes
from evidence.kills.runs import differences, write_images
from parity.runs.folder import read_run

COUNTS = (1, 2, 4)
MOST = 8
"""Kills of one run."""


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
        """Number of kills, of runs that were compared."""
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
        if differing := compare(broken.run_dir, self._whole.run_dir):
            sys.exit("\n".join([f"{broken.run_dir.name} is not the same:", *differing]))
        shutil.rmtree(broken.run_dir)
        by = {str(number): times for number, times in numbers.items()}
        others = list(self.others)
        self._ledger.add(count=self.count, others=others, places=places, numbers=by, apart=broken.apart)

    def __str__(self) -> str:
        return sentence(self.count, self.others, self.rows)


def fresh(folder: Path, name: str) -> Processes:
    """A run from its start, whatever was in its folder."""
    shutil.rmtree(folder / name, ignore_errors=True)
    return Processes(folder, folder / name)


def kill_hosts(folder: Path, kills: int, counts: Sequence[int], seed: int) -> list[str]:
    """Kill so many processes, those of before in this folder among them; a sentence on each way.

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
        if differing := far(whole.run_dir, alone.run_dir):
            sys.exit("\n".join([f"{count} processes are not one:", *differing]))
        again = fresh(folder, f"again{count}")
        starting, training = again.finish(count)
        if differing := differences(again.run_dir, whole.run_dir):
            sys.exit("\n".join([f"{count} processes are not the same again:", *differing]))
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
    if options.write and not options.folder:
        parser.error("--write goes with --folder, which has what was done")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).absolute()
        if options.kills:
            kill_hosts(folder, options.kills, options.processes, options.seed)
        if options.write:
            PAGE.write_text(page(Ledger(folder)))


if __name__ == "__main__":
    main()
