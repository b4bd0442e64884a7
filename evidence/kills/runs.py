"""Kill a training run again and again, and see that in the end it is the one that nobody disturbed.

    python -m evidence.kills.runs [KILLS [FRAMEWORK [SEED]]]

Two runs of `train.py` on JPEGs that this writes, with everything on: random crops, RandAugment, jitter,
erasing, repeated views, mixup and cutmix, dropout, stochastic depth, accumulation, layer decay, a best
checkpoint, an average that warms up, two worker processes, checkpoints by the clock, also between two
lines of the log. One ends by itself. The other is killed (SIGKILL) at random moments: while it starts,
between two steps, while it saves, evaluates or exports; each time the same command goes on. At the end
every number of parameters, moments and average, each logged loss and the exported file have to be the
same, bit for bit, and no process may be left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NoReturn

import numpy as np
from PIL import Image

from evidence import ROOT, positional
from parity.runs.folder import read_run
from vit_train.folder.log import UNLOGGED, read_log

MODEL = """
[model]
image_size = [21, 15]
patch_size = [7, 5]
hidden_size = 30
in_channels = 3
num_heads = 5
mlp_dim = 44
num_classes = 3
dropout_embed = 0.1
dropout_mlp_inner = 0.1
"""
JOB = f"""{MODEL}
depth = 2
stochastic_depth = 0.2

[recipe]
epochs = {{epochs}}
batch_size = 6
warmup_epochs = 1.0
accumulate = 2
optimizer = "lamb"
weight_decay = 0.05
layer_decay = 0.7
ema = 0.9
ema_warmup = true
loss = "sigmoid_mean"
class_weights = [0.5, 2.0, 1.0]
sampling = "balanced"
validation_fraction = 0.2
eval_every_epochs = 2
checkpoint_every_epochs = 1
log_every_steps = 2

[recipe.augment]
crop = "torchvision"
flip = true
policy = "timm"
color_jitter = 0.3
erase = 0.5
repeats = 2

[recipe.mix]
mixup = 0.8
cutmix = 1.0
"""
SEEN = ("kind", "step", "loss", "accuracy", "grad_norm", "learning_rate", "count")
"""Entries of a line of the log that do not depend on the clock."""


def write_images(folder: Path) -> None:
    """Three classes of 13 JPEGs, larger than the model's images and of several sizes."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(("blue", "green", "red")):
        (folder / name).mkdir(parents=True)
        for index in range(13):
            pixels = rng.integers(0, 120, (37 + index, 29, 3))
            pixels[:, :, label] += 100
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{index}.jpg")


def count_lines(run_dir: Path) -> int:
    """Return the number of lines of a run's log."""
    log = run_dir / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.is_file() else 0


class Killed:
    """A run in a folder, which may be started, watched and killed."""

    def __init__(self, job: Path, data: Path, run_dir: Path, framework: str) -> None:
        self.run_dir = run_dir
        self._command = [sys.executable, "train.py", "--config", str(job), "--data", f"folder:{data}"]
        self._command += ["--framework", framework, "--workers", "2", "--best", "loss"]
        self._command += ["--save-every", "0.3s"]
        self._command += ["--run-dir", str(run_dir)]

    def start(self) -> subprocess.Popen[str]:
        """Go on, in a session of its own."""
        with (self.run_dir.parent / f"{self.run_dir.name}.txt").open("a") as said:
            return subprocess.Popen(
                self._command, cwd=ROOT, stdout=said, stderr=said, start_new_session=True, text=True
            )

    def finish(self) -> None:
        """Go on to the end.

        Raises:
            SystemExit: it does not come to the end.
        """
        if self.start().wait() != 0:
            self.give_up()

    def give_up(self) -> NoReturn:
        """Say what the run said, and end with status 1."""
        sys.exit((self.run_dir.parent / f"{self.run_dir.name}.txt").read_text())

    @property
    def lines(self) -> int:
        """Number of lines of its log."""
        return count_lines(self.run_dir)

    def kill(self, rng: np.random.Generator, starting: float, pause: float) -> str:
        """Go on and kill it: while it starts, or after some steps.

        Args:
            starting: how many seconds it takes to the first step.
            pause: how many seconds of training lie between two kills, on average.

        Returns:
            Where it was: "start", "training" or, if it was faster, "end".
        """
        process, begun = self.start(), self.lines
        early = rng.random() < 0.2
        after = rng.uniform(0, starting) if early else rng.uniform(0, 2 * pause)
        while not early and process.poll() is None and self.lines <= begun + 1:
            begun = min(begun, self.lines)  # lines after the last checkpoint are taken back
            time.sleep(0.01)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        until = time.monotonic() + 20
        while alive(process.pid):
            if time.monotonic() > until:
                sys.exit(f"processes of the run outlive it: session {process.pid}")
            time.sleep(0.01)
        if process.returncode not in (0, -signal.SIGKILL):
            self.give_up()
        return "end" if process.returncode == 0 else "start" if early else "training"


def alive(session: int) -> bool:
    """Whether a process of a session is there still."""
    try:
        os.killpg(session, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def differences(one: Path, other: Path) -> list[str]:
    """Return the parts of two runs that are not the same, bit for bit."""
    states = [read_run(folder).state for folder in (one, other)]
    if states[0].step != states[1].step:
        return [f"step {states[0].step} and {states[1].step}"]
    parts = [state.parts() for state in states]
    lines = [
        f"{part}: {name}"
        for part, arrays in parts[0].items()
        for name, array in arrays.items()
        if np.asarray(array).tobytes() != np.asarray(parts[1][part][name]).tobytes()
    ]
    logs = [
        [{key: event[key] for key in SEEN if key in event} for event in read_log(folder)]
        for folder in (one, other)
    ]
    logs = [[event for event in log if event["kind"] not in ("start", UNLOGGED)] for log in logs]
    lines += [f"log: {a} and {b}" for a, b in zip(*logs, strict=False) if a != b]
    if len(logs[0]) != len(logs[1]):
        lines.append(f"log: {len(logs[0])} and {len(logs[1])} lines")
    files = [folder / "weights.safetensors" for folder in (one, other)]
    exported = [path.read_bytes() if path.is_file() else None for path in files]
    if exported[0] != exported[1]:
        lines.append("weights.safetensors")
    return lines


def kill_runs(folder: Path, kills: int, framework: str, seed: int) -> str:
    """Kill a run so many times; a sentence on what happened.

    Raises:
        SystemExit: it came to another end than the run that nobody disturbed.
    """
    write_images(folder / "images")
    job = folder / "job.toml"
    job.write_text(JOB.format(epochs=kills + 4))
    whole = Killed(job, folder / "images", folder / "whole", framework)
    since = time.monotonic()
    process = whole.start()
    while whole.lines < 2 and process.poll() is None:
        time.sleep(0.01)
    starting = time.monotonic() - since
    if process.wait() != 0:
        whole.give_up()
    log = [event for event in read_log(whole.run_dir) if event["kind"] == "train"]
    pause = (log[-1]["time"] - log[0]["time"]) / kills
    rng, places, runs = np.random.default_rng(seed), Counter[str](), 0
    while places["start"] + places["training"] < kills:
        runs += 1
        broken = Killed(job, folder / "images", folder / f"broken{runs}", framework)
        place = ""
        while place != "end" and places["start"] + places["training"] < kills:
            place = broken.kill(rng, starting, pause)
            places[place] += 1
        broken.finish()
        if differing := differences(whole.run_dir, broken.run_dir):
            sys.exit("\n".join(["not the same:", *differing]))
    steps = runs * log[-1]["step"]
    return (
        f"{framework}: {kills} kills in {steps} steps, {places['start']} of them before a first one;"
        " parameters, moments, average, log and exported weights are those of the run that nobody"
        " killed, bit for bit"
    )


def main() -> None:
    kills, framework, seed = positional(__doc__, kills=50, framework="jax", seed=0)
    with tempfile.TemporaryDirectory() as name:
        print(kill_runs(Path(name), kills, framework, seed))


if __name__ == "__main__":
    main()
