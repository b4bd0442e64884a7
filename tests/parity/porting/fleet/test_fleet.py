"""A folder of many checkpoints is looked through and converted, whatever happens on the way."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from parity.cli import main
from parity.porting.fleet import FleetManifest, run_manifest
from parity.porting.fleet.ledger import LEDGER
from tests.support.fleet_folder import (
    ANSWER,
    BROKEN,
    CFG,
    LOCK,
    REFUSED,
    answer,
    contents,
    fill,
    lines,
    run,
)
from vit_config import read_weights

GOOD = 13  # each kind twice
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Many checkpoints, their manifest with answers, and what an undisturbed run makes of them."""
    root = tmp_path_factory.mktemp("fleet")
    good = fill(root / "in", GOOD)
    assert main(["scan", str(root / "in"), "-o", str(root / "jobs.json")]) == 1
    asked = FleetManifest.load(root / "jobs.json")
    answer(root / "jobs.json", **ANSWER)
    status = run(root / "jobs.json", out=root / "out")
    return root, good, asked, status


def test_a_scan_says_what_is_there(fleet):
    root, good, asked, _ = fleet
    jobs = {job.path: job for job in asked.checkpoints}
    assert list(jobs) == sorted(jobs, key=lambda path: path.split("/"))
    assert jobs.keys() == {*good, *BROKEN}
    assert asked.folder == "in"
    for path, job in jobs.items():
        if path in BROKEN:
            assert job.status == ("refused" if path in REFUSED else "broken")
            assert job.found is None
            assert BROKEN[path] in (job.said or "")
            assert "\n" not in (job.said or "")
        elif "torchvision" in path:
            assert (job.status, job.set) == ("ask", {"num_heads": None})
            assert job.found is not None
            assert (job.found.dialect, job.found.container) == ("torchvision", "torch")
        else:
            assert (job.status, job.said) == ("ready", None)
            assert job.found is not None
            assert job.found.config is not None
            assert job.found.config.hidden_size == CFG.hidden_size
            assert job.found.origins["num_heads"]
            assert job.found.bytes == 4 * job.found.parameters
    assert not (root / "in/trace").exists()
    again = root / "again.json"
    assert main(["scan", str(root / "in"), "-o", str(again)]) == 1
    assert FleetManifest.load(again) == asked


def test_all_that_can_be_is_converted(fleet):
    root, good, _, status = fleet
    assert status == 1
    seen = Counter((line["row"], line["status"]) for line in lines(root / "out"))
    assert {row for row, status in seen if status == "done"} == set(good)
    assert {row for row, status in seen if status == "failed"} == set(BROKEN)
    assert set(seen.values()) == {1}
    for line in lines(root / "out"):
        if line["status"] == "failed":
            assert BROKEN[line["row"]] in line["error"]
    done = [line for line in lines(root / "out") if line["status"] == "done"]
    assert {line["output"] for line in done} == contents(root / "out").keys()
    assert all(read_weights(root / "out" / line["output"]).config.num_heads == 5 for line in done)
    assert not (root / "in/trace").exists()


def start(root, out):
    """The command in a process of its own."""
    command = ["convert", "--manifest", str(root / "jobs.json"), "--to", "parity", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "parity", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(out, done):
    """Until the ledger has as many lines of what is done."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if (out / LEDGER).exists() and (out / LEDGER).read_text().count('"done"') >= done:
            return
        time.sleep(0.002)
    raise AssertionError("it does nothing")


def assert_as_undisturbed(root, out, good):
    done = Counter(line["row"] for line in lines(out) if line["status"] == "done")
    assert done == dict.fromkeys(good, 1)
    assert contents(out) == contents(root / "out")
    assert {path.name for path in out.iterdir() if path.name.startswith(".")} <= {LOCK}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_killed_run_goes_on_where_it_was(fleet, tmp_path):
    root, good, _, _ = fleet
    killed, out = 0, tmp_path / "out"
    for enough in (3, 6):
        process = start(root, out)
        wait_for(out, enough)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed == 2
    with (out / LEDGER).open("a") as file:
        file.write('{"row": "torn')
    process = start(root, out)
    said, _ = process.communicate()
    assert process.returncode == 1
    assert "last line was cut off" in " ".join(said.split())
    assert f"{len(BROKEN)} failed" in said
    assert_as_undisturbed(root, out, good)


def test_an_interrupted_run_goes_on_too(fleet, tmp_path):
    root, good, _, _ = fleet
    out, screen = tmp_path / "out", io.StringIO()
    started = []

    def interrupt(what, work, then):
        started.append(what)
        if len(started) == 5:
            raise KeyboardInterrupt

    options = {"to": "parity", "out": out, "console": Console(file=screen)}
    assert run_manifest(root / "jobs.json", **options, on_stage=interrupt) == 130
    assert "interrupted; the same command goes on" in screen.getvalue()
    before = Counter(line["status"] for line in lines(out))
    assert before["done"] + before["failed"] == 4
    assert run(root / "jobs.json", out=out) == 1
    assert_as_undisturbed(root, out, good)


def test_a_run_that_was_killed_in_a_checkpoint_says_in_which(fleet, tmp_path):
    root, _, _, _ = fleet
    out, screen = shutil.copytree(root / "out", tmp_path / "out"), io.StringIO()
    ledger = (out / LEDGER).read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(ledger) if '"started"' in line)
    (out / LEDGER).write_text("".join(ledger[: last + 1]))
    console = Console(file=screen, width=200)
    assert run_manifest(root / "jobs.json", to="parity", out=out, console=console) == 1
    row = json.loads(ledger[last])["row"]
    assert f"the last run ended while it converted {row}, which is tried again" in screen.getvalue()
    assert contents(out) == contents(root / "out")
