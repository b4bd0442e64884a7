"""Signals are answered at once, whatever the main thread waits for, and no result depends on them."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from tests.support.stopping import stopping_after, stopping_in_evaluation
from tests.support.tiny import TINY
from tests.support.tiny_tfds import write_tiny_set
from vit_config import Recipe
from vit_config.job import Job
from vit_torch.train.run import train
from vit_train.folder.log import read_log
from vit_train.folder.saving import SaveEvery
from vit_train.stopping import stop_signals

RUN = """
import hashlib, sys, threading, time
from vit_train.stopping import stop_signals
import vit_train.stopping
vit_train.stopping.GRACE = 0.2
long = lambda: hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)  # one call, in which no handler runs
say = lambda text: print(f"{text}\\n", end="", flush=True)  # in one piece, from two threads
saves = sys.argv[1] == "saves"
until = [None]
def writing():
    until[0] = until[0] or time.monotonic() + 1.0
    return saves and time.monotonic() < until[0]
with stop_signals(6, 9, say, writing, lambda: say("left")) as should_stop:
    assert not should_stop()
    if sys.argv[1] == "steps":
        say("steps")
        while not should_stop():
            time.sleep(0.05)
        say("ended")
    else:
        threading.Timer(0.5, say, ["steps"]).start()  # a busy machine may be late to begin the call
        long()
"""


@pytest.fixture
def begun():
    processes = []

    def begin(kind):
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, kind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout.readline() == "steps\n"
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_in_one_long_call_answers_and_then_leaves(begun, number):
    process = begun("long")
    process.send_signal(number)
    assert process.stdout.readline() == "stopping after step 8; again to stop now\n"
    process.send_signal(number)
    assert process.stdout.readline() == "left\n"
    assert process.wait(20) == 130


def test_the_second_signal_waits_for_a_checkpoint(begun):
    process = begun("saves")
    process.send_signal(signal.SIGINT)
    process.stdout.readline()
    since = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 130
    assert time.monotonic() - since > 1.0


def test_a_run_between_two_steps_ends_by_itself(begun):
    process = begun("steps")
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    answer, ended = sorted(out.splitlines(), reverse=True)  # two threads print, in either order
    assert answer.startswith("stopping after step ")
    assert ended == "ended"


def test_processes_that_train_together_stop_when_they_agree(monkeypatch):
    """Ctrl-C of one is answered by it, and handed on as SIGTERM, which they agree on."""
    said, sent = [], []
    monkeypatch.setattr("vit_train.stopping.os.kill", lambda _, number: sent.append(number))
    with stop_signals(
        6, 9, said.append, lambda: False, lambda: None, lambda step: step == 9
    ) as stopping:
        assert not stopping()
        signal.raise_signal(signal.SIGINT)
        until = time.monotonic() + 20
        while not sent and time.monotonic() < until:
            time.sleep(0.01)
        with stopping.between_steps() as leaves:
            assert not leaves()
        assert [stopping(), stopping()] == [False, True]
    assert sent == [signal.SIGTERM]
    assert said == [
        "stopping when all processes agree on a step; again to stop now",
        "stopping after step 9: a process was told to stop",
    ]


def test_an_evaluation_is_left_and_made_up_for(tmp_path, monkeypatch):
    """Also the last one, with checkpoints by the clock after every step, and one that was lost."""
    write_tiny_set(tmp_path)
    recipe = Recipe(epochs=3, batch_size=8, validation_fraction=0.2, eval_every_epochs=1)
    recipe = recipe.replace(log_every_steps=3, watch_test=True)
    job = Job(TINY.replace(depth=1, num_classes=3), recipe, "tfds:tiny_rectangles", best="loss")
    options = {"data_dir": tmp_path, "console": Console(quiet=True)}
    whole = train(job, run_dir=tmp_path / "whole", **options)
    options |= {"run_dir": tmp_path / "broken", "save_every": SaveEvery(1e-9)}
    for how, steps, reached in (
        (stopping_in_evaluation, 4, 4),
        (stopping_after, 2, 6),
        (stopping_in_evaluation, 7, 12),  # of the steps from 5 on
    ):
        with monkeypatch.context() as patch:
            how(steps, patch)
            stopped = train(job, **options)
        assert (stopped.step, stopped.test) == (reached, None)
        if how is stopping_after:  # as if the run had been killed while it wrote that one
            (tmp_path / "broken" / "checkpoints" / "6.pt").unlink()
    broken = train(job, **options)
    assert vars(broken.best) == vars(whole.best)
    for name, value in whole.params.items():
        np.testing.assert_array_equal(value, broken.params[name], err_msg=name)
    lines = [
        [
            (e["kind"], e["step"], e["loss"])
            for e in read_log(tmp_path / folder)
            if e["kind"] in ("train", "validation", "test")
        ]
        for folder in ("whole", "broken")
    ]
    assert lines[0] == lines[1]
    assert sum(kind == "validation" for kind, *_ in lines[0]) == 3
