"""A run folder damaged at random, a thousand times: seen and named, or the state is what it was.

    python -m evidence.kills.damage [--rounds 1000] [--seed 0]

A run with three checkpoints; then, each time in a fresh copy, a bit is flipped, a file is cut, emptied
or deleted, or a folder removed, half of them in the newest checkpoint, and the run is taken up again.
Allowed are the newest state, bit for bit; an older one, with a line that names the damage; a refusal
in a line. Exit status 1 if anything else happens.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vit_config.errors import first_line

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from tests.support.tiny import TINY
from vit_config import Recipe, errors
from vit_config.job import Job
from vit_jax.step import TrainState, init_state
from vit_jax.train.checkpoint import Checkpoints, to_named
from vit_train.conduct import CHECKPOINTS
from vit_train.folder.log import RunLog, taken_again
from vit_train.folder.manifest import claim, make_manifest

CFG = TINY.replace(depth=2)
JOB = Job(CFG, Recipe(), "tfds:rectangles")
MANIFEST = make_manifest(JOB, "fingerprint")
STEPS = (3, 6, 9)
REFUSALS = tuple(vars(errors)[name] for name in vars(errors) if name.endswith("Error"))


class Resumption(NamedTuple):
    """The result of taking a run up again."""

    step: int | None
    """None where it was refused."""
    same: bool
    """Whether the state is bit for bit what was saved after that step."""
    said: list[str]


def state_after(step: int) -> TrainState:
    """A state with values that are all different."""
    rng = np.random.default_rng(step)
    return jax.tree.map(lambda x: rng.standard_normal(x.shape).astype(x.dtype), jax.eval_shape(_initial))


def _initial() -> TrainState:
    return init_state(CFG, JOB.recipe, 3)


def make_run(folder: Path) -> None:
    """Write the folder of a run of nine steps."""
    folder.mkdir()
    claim(folder, MANIFEST)
    with (
        Checkpoints(folder / CHECKPOINTS, run_id=MANIFEST.run_id) as checkpoints,
        RunLog(folder, start_step=0) as log,
    ):
        for step in STEPS:
            log.write("train", step, loss=1.0 / step)
            checkpoints.save(step, state_after(step))


def take_up(folder: Path) -> Resumption:
    """Do what `vit_train.conduct` does before the first step."""
    said: list[str] = []
    try:
        said += claim(folder, MANIFEST)
        with Checkpoints(folder / CHECKPOINTS, run_id=MANIFEST.run_id) as checkpoints:
            step, state = checkpoints.restore_latest(jax.eval_shape(_initial), warn=said.append)
        said += filter(None, [taken_again(folder, step or 0)])
        with RunLog(folder, start_step=step or 0):
            pass
    except REFUSALS as error:
        return Resumption(None, True, [*said, str(error)])
    if step is None:
        return Resumption(0, True, said)
    expected, actual = to_named(state_after(step)), to_named(state)
    return Resumption(step, all(np.array_equal(actual[name], expected[name]) for name in expected), said)


def judge(resumption: Resumption) -> str:
    """The verdict, ``WRONG`` where damage went through or was not told."""
    if not resumption.same or any("\n" in line for line in resumption.said):
        return "WRONG"
    if resumption.step == STEPS[-1]:
        return "the newest state, bit for bit"
    if not resumption.said:
        return "WRONG"
    return "refused in a line" if resumption.step is None else "named, and an older state, bit for bit"


def flip(path: Path, rng: random.Random) -> str:
    """One bit."""
    content = bytearray(path.read_bytes())
    if not content:
        return "nothing to flip in"
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"bit of byte {place} flipped in"


def cut(path: Path, rng: random.Random) -> str:
    """The end, or everything."""
    content = path.read_bytes()
    length = rng.randrange(len(content)) if content and rng.random() < 0.8 else 0
    path.write_bytes(content[:length])
    return f"{length} of {len(content)} bytes left of"


def delete(path: Path, rng: random.Random) -> str:
    """The file, or the folder that it is in, but for the run's own."""
    if rng.random() < 0.7 or (path.parent / "run.json").exists():
        path.unlink()
        return "deleted"
    shutil.rmtree(path.parent)
    return "folder deleted of"


CHANGES: tuple[Callable[[Path, random.Random], str], ...] = (flip, cut, delete)


def attack(run: Path, inside: Path, rng: random.Random) -> tuple[str, str, str, Resumption]:
    """Damage a copy of a run, and take it up: kind of change, what was done, verdict, and outcome."""
    copy = inside / "copy"
    shutil.copytree(run, copy)
    newest = copy / CHECKPOINTS / str(STEPS[-1])
    somewhere = newest if rng.random() < 0.5 else copy  # half of the damage where it matters most
    files = sorted(path for path in somewhere.rglob("*") if path.is_file())
    path, change = rng.choice(files), rng.choice(CHANGES)
    what = f"{change(path, rng)} {path.relative_to(copy)}"
    resumption = take_up(copy)
    shutil.rmtree(copy, ignore_errors=True)
    return change.__name__, what, judge(resumption), resumption


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        make_run(run := Path(name) / "run")
        for _ in range(arguments.rounds):
            kind, what, verdict, resumption = attack(run, Path(name), rng)
            counts[kind, verdict] += 1
            if verdict == "WRONG":
                print(f"WRONG: {what}: step {resumption.step}, {resumption.said}", flush=True)
    for (kind, verdict), count in sorted(counts.items()):
        print(f"{kind:8}{verdict:42}{count:5}")
    return 1 if any(verdict == "WRONG" for _, verdict in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
