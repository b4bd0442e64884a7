"""A folder of checkpoints is looked through and converted, whatever happens on the way."""

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

import numpy as np
import pytest
import torch
from rich.console import Console

from parity.cli import main
from parity.porting.conversion import convert
from parity.porting.fleet import Manifest, run_manifest, scan
from parity.porting.fleet.ledger import LEDGER
from tests.support.convert_cases import arrays_of
from tests.support.convert_cases import run as command
from tests.support.fleet_folder import (
    ANSWER,
    BROKEN,
    CFG,
    REFUSED,
    answer,
    fill,
    forget,
    in_this_process,  # noqa: F401 - a fixture
    own_file,
)
from vit_config import ConfigError, MissingFileError, read_weights
from vit_config.files.safetensors_header import read_file_header

GOOD = 13  # each kind twice
LOCK = f".{LEDGER}.lock"
"""What a run holds while it writes."""
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Many checkpoints, their manifest with answers, and what an undisturbed run makes of them."""
    root = tmp_path_factory.mktemp("fleet")
    good = fill(root / "in", GOOD)
    assert main(["scan", str(root / "in"), "-o", str(root / "jobs.json")]) == 1
    asked = Manifest.load(root / "jobs.json")
    answer(root / "jobs.json", **ANSWER)
    status = run(root / "jobs.json", out=root / "out", jobs=2)
    return root, good, asked, status


def run(path, *, to="parity", **options):
    with open(os.devnull, "w") as nowhere:
        return run_manifest(path, to=to, console=Console(file=nowhere), **options)


def lines(out):
    return [json.loads(line) for line in (out / LEDGER).read_text().splitlines()]


def contents(out):
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name not in (LEDGER, LOCK)
    }


def test_a_sound_checkpoint_of_another_model_is_not_broken_and_is_left_out(tmp_path, capsys):
    """One without attention, one that is refused by its name, one in eight bits, one of videos."""
    state = {name: torch.from_numpy(each) for name, each in arrays_of(CFG).items()}
    others = {
        "resnet": {"layer1.0.conv1.weight": torch.ones(3, 3), "layer4.0.conv1.weight": torch.ones(3, 3)},
        "words": {"embeddings.word_embeddings.weight": torch.ones(7, 3)},
        "sam": {**state, "blocks.0.attn.rel_pos_h": torch.ones(3)},
        "narrow": {
            name: each.to(torch.int8) if each.ndim == 2 else each for name, each in state.items()
        },
        "videos": {**state, "patch_embed.proj.weight": torch.ones(30, 3, 2, 5, 5)},
    }
    for name, each in others.items():
        torch.save(each, tmp_path / f"{name}.pth")
    stages = []
    found = scan(tmp_path, told=lambda *stage: stages.append(stage)).manifest
    assert stages == [(f"opening {name}.pth", 1, 4 - i) for i, name in enumerate(sorted(others))]
    assert {job.path: (job.status, job.skip) for job in found.checkpoints} == {
        f"{name}.pth": ("other", True) for name in others
    }
    status, out, _ = command(capsys, "scan", tmp_path)
    assert status == 0
    assert "5 checkpoints: 5 other" in out


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
    assert Manifest.load(again) == asked


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


def start(root, out, *python):
    """The command in a process of its own; its two workers hang after two checkpoints each."""
    python = python or ("-c", "from tests.support.slow_fleet import command; command()")
    command = ["convert", "--manifest", str(root / "jobs.json"), "--to", "parity", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, *python, *command, "--jobs", "2"],
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


def wait_for_the_end_of(group):
    """Until no process of it is left."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("a worker outlives the run")


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
        os.kill(process.pid, signal.SIGKILL)  # its workers are to notice for themselves
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        wait_for_the_end_of(process.pid)
    assert killed == 2
    with (out / LEDGER).open("a") as file:
        file.write('{"row": "torn')
    process = start(root, out, "-m", "parity")
    said, _ = process.communicate()
    assert process.returncode == 1
    assert "last line was cut off" in " ".join(said.split())
    assert f"{len(BROKEN)} failed" in said
    assert_as_undisturbed(root, out, good)


def test_an_interrupted_run_goes_on_too(fleet, tmp_path):
    root, good, _, _ = fleet
    out = tmp_path / "out"
    process = start(root, out)
    wait_for(out, 1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    said, _ = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "interrupted; the same command goes on" in said
    assert {path.name for path in out.iterdir() if path.name.startswith(".")} <= {LOCK}
    before = Counter(line["status"] for line in lines(out))["done"]
    assert 1 <= before <= 4
    assert run(root / "jobs.json", out=out) == 1
    assert_as_undisturbed(root, out, good)


@pytest.mark.usefixtures("in_this_process")
def test_only_what_changed_is_done_again(tmp_path):
    (tmp_path / "in").mkdir()
    for index in range(4):
        own_file(tmp_path / f"in/{index}.safetensors", index)
    path, out = tmp_path / "jobs.json", tmp_path / "out"

    def again(**options):
        before = len(lines(out)) if out.exists() else 0
        status = run(path, out=out, **options)
        return status, [line["row"] for line in lines(out)[before:] if line["status"] == "done"]

    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    names = [f"{index}.safetensors" for index in range(4)]
    assert again() == (0, names)
    assert again() == (0, [])
    own_file(tmp_path / "in/0.safetensors", 10)
    (out / "1.safetensors").unlink()
    (out / "2.safetensors").write_bytes(b"damaged")
    assert again() == (0, names[:3])
    assert again(license_allow=["MIT"]) == (0, names)
    content = json.loads(path.read_text())
    content["checkpoints"][0] |= {"dtype": "float64", "num_classes": 0}
    content["checkpoints"][1]["skip"] = True
    path.write_text(json.dumps(content))
    assert again(license_allow=["mit"]) == (0, names[:1])
    written = read_weights(out / "0.safetensors")
    assert written.config.num_classes == 0
    assert written.arrays["cls_token"].dtype == "float64"
    assert again(license_allow=["apache-2.0"]) == (1, [])
    assert {line["error"] for line in lines(out)[-6:] if line["status"] == "failed"} == {
        "is under mit, and only apache-2.0 may pass"
    }


@pytest.mark.usefixtures("in_this_process")
def test_what_somebody_else_wrote_is_not_replaced_unless_forced(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    own_file(tmp_path / "in/a.safetensors", 0)
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    (out / "a.safetensors").write_bytes(b"mine")
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    assert run(path, out=out) == 1
    assert (out / "a.safetensors").read_bytes() == b"mine"
    assert run(path, out=out, force=True) == 0
    assert read_weights(out / "a.safetensors").config == CFG
    assert run(path, to="timm", out=out) == 0
    assert sorted(each.name for each in (out / "a").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.usefixtures("in_this_process")
def test_damage_and_questions_fail_their_row_alone(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for name in "abc":
        own_file(tmp_path / f"in/{name}.safetensors", 0)
    header = read_file_header(tmp_path / "in/b.safetensors")
    content = bytearray((tmp_path / "in/b.safetensors").read_bytes())
    content[-1] ^= 1
    assert header.entries
    (tmp_path / "in/b.safetensors").write_bytes(content)
    shutil.copytree(tmp_path / "in", tmp_path / "more")
    path = tmp_path / "jobs.json"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0  # the header is all right
    (tmp_path / "in/c.safetensors").unlink()
    arguments = ["--manifest", str(path), "--to", "torchvision", "--out", str(tmp_path / "out")]
    capsys.readouterr()
    assert main(["convert", *arguments]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "do not match" in said
    assert "c.safetensors failed no such file" in said
    assert "1 done, 2 failed" in said
    assert main(["scan", str(tmp_path / "out")]) == 0  # what was converted is not looked at
    path = tmp_path / "again.json"
    shutil.copy(tmp_path / "out/a.pth", tmp_path / "more/d.pth")
    forget(tmp_path / "more/d.pth")
    assert main(["scan", str(tmp_path / "more"), "-o", str(path)]) == 1
    assert run(path, out=tmp_path / "other") == 1
    ends = {line["row"]: line for line in lines(tmp_path / "other") if line["status"] != "started"}
    assert ends["d.pth"]["status"] == "asked"
    assert "cannot infer num_heads" in ends["d.pth"]["error"]
    assert {row: line["status"] for row, line in ends.items()} == {
        "a.safetensors": "done",
        "b.safetensors": "failed",
        "c.safetensors": "done",
        "d.pth": "asked",
    }


def test_a_terminal_sees_one_bar(fleet, tmp_path):
    root, _, _, _ = fleet
    out = shutil.copytree(root / "out", tmp_path / "out")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    assert run_manifest(root / "jobs.json", to="parity", out=out, console=console) == 1
    assert f"of {GOOD + len(BROKEN)}" in screen.getvalue()
    assert f"{GOOD} unchanged" in screen.getvalue()
    assert "in/deep" not in screen.getvalue()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.slow
def test_folders_of_orbax(tmp_path):
    import orbax.checkpoint as ocp

    own_file(tmp_path / "own.safetensors", 0, act="gelu_tanh")
    convert(tmp_path / "own.safetensors", to="google", out=tmp_path / "g.npz")
    tree = {}
    for name, array in np.load(tmp_path / "g.npz").items():
        *parts, last = name.split("/")
        inner = tree
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = array
    with ocp.CheckpointManager(tmp_path / "in" / "run") as manager:
        for step in (3, 12):
            manager.save(step, args=ocp.args.StandardSave(tree))
    assert main(["scan", str(tmp_path / "in"), "-o", str(tmp_path / "jobs.json")]) == 0
    jobs = Manifest.load(tmp_path / "jobs.json").checkpoints
    assert [job.path for job in jobs] == ["run/12", "run/3"]
    for status in ("done", "unchanged"):
        screen = io.StringIO()
        console = Console(file=screen, width=120)
        assert (
            run_manifest(tmp_path / "jobs.json", to="google", out=tmp_path / "out", console=console) == 0
        )
        assert f"2 {status}" in screen.getvalue()
    for step in (3, 12):
        written = np.load(tmp_path / "out" / f"run--{step}.npz")
        for name, array in np.load(tmp_path / "g.npz").items():
            np.testing.assert_array_equal(written[name], array)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.slow
def test_what_is_verified_is_run(tmp_path):
    (tmp_path / "in").mkdir()
    own_file(tmp_path / "in/a.safetensors", 0)
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    assert run(path, out=out, to="timm") == 0
    assert run(path, out=out, to="timm", verify=True) == 0
    assert run(path, out=out, to="timm") == 0
    assert [line.get("verified") for line in lines(out) if line["status"] == "done"] == [False, True]
    assert json.loads((out / "a/verification.json").read_text())["passed"]


@pytest.mark.usefixtures("in_this_process")
def test_a_part_may_be_asked_for(tmp_path):
    (tmp_path / "in").mkdir()
    states = {}
    for index, part in enumerate(("model", "model_ema")):
        own_file(tmp_path / "own.safetensors", index)
        convert(tmp_path / "own.safetensors", to="torchvision", out=tmp_path / "t.pth", force=True)
        states[part] = torch.load(tmp_path / "t.pth")
    torch.save(states, tmp_path / "in/both.pth")
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 1
    content = json.loads(path.read_text())
    (job,) = content["checkpoints"]
    assert job["status"] == "ask"
    assert job["said"].startswith("holds several models, model (torchvision), model_ema (torchvision)")
    assert job["found"]["dialect"] is None
    assert job["set"] == {}
    job |= {"part": "model_ema", "set": ANSWER}
    path.write_text(json.dumps(content))
    assert run(path, out=out) == 0
    expected = read_weights(tmp_path / "own.safetensors").arrays["head.weight"]
    np.testing.assert_array_equal(read_weights(out / "both.safetensors").arrays["head.weight"], expected)


def test_bad_input_is_refused_at_once(tmp_path):
    (tmp_path / "in").mkdir()
    path, out = tmp_path / "jobs.json", tmp_path / "out"
    with pytest.raises(MissingFileError, match=r"jobs\.json: no such file"):
        run(path, out=out)
    assert main(["scan", str(tmp_path / "in"), "-o", str(path)]) == 0
    assert run(path, out=out) == 0  # nothing to do
    with pytest.raises(ConfigError, match="unknown dialect"):
        run(path, out=out, to="nonsense")
    with pytest.raises(ConfigError, match="must be at least 1"):
        run(path, out=out, jobs=0)
    with pytest.raises(ConfigError, match="is a file"):
        run(path, out=path)
    with pytest.raises(MissingFileError, match="no such folder to make"):
        run(path, out=tmp_path / "no/where")
    for arguments in ([], ["nowhere"], [str(path)], [str(tmp_path), "-o", str(tmp_path)]):
        assert main(["scan", *arguments]) == 2
