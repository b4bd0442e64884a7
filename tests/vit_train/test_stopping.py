"""Signals are answered at once, whatever the main thread is waiting for."""

import signal
import subprocess
import sys
import time

import pytest

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
with stop_signals(6, say, writing, lambda: say("left")) as should_stop:
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
