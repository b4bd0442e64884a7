"""Real processes that train as one in a run folder on object storage."""

import shutil
import time
from pathlib import Path

import jax
import pytest
from rich.console import Console

import tests.support.train_in_bucket  # noqa: F401
from parity.cli import run
from parity.cli.support.train_options import parse
from tests.support.same_state import assert_same_run
from tests.support.tiny_tfds import write_tiny_set
from tests.support.together import Together
from tests.vit_jax.test_train_hosts import FLAGS, MESH, words
from vit_jax.train.hosts import see_same
from vit_jax.train.run import train
from vit_train.folder.mirror import working_folder

PROGRAM = Path(__file__).parents[1] / "support" / "train_in_bucket.py"
STEPS = 24


def wait_for(actual, both, seconds=300):
    until = time.monotonic() + seconds
    while not actual():
        assert time.monotonic() < until, both.printed()
        assert all(process.poll() is None for process in both.processes), both.printed()
        time.sleep(0.2)


@pytest.mark.exhaustive  # a minute of CPU time
def test_two_processes_are_killed_and_go_on_from_what_is_there(tmp_path, monkeypatch, capsys):
    data_dir, there = tmp_path / "data", tmp_path / "there"
    write_tiny_set(data_dir)
    flags = FLAGS | {"recipe.checkpoint-every-epochs": "1"}
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(data_dir), *words(flags)]
    url = f"bucket://{there}"
    how = [*argv, "--mesh", MESH, "--run-dir", url]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    with Together(how, tmp_path, program=PROGRAM) as both:
        wait_for(lambda: list(there.glob("checkpoints/*.complete")), both)
        for process in both.processes:  # the machine is gone, and its disk
            process.kill()
    shutil.rmtree(tmp_path / "first")
    last = max(int(path.stem) for path in there.glob("checkpoints/*.complete"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    stop = last + STEPS
    with Together([*how, "--stop-after", str(stop)], tmp_path, program=PROGRAM) as both:
        assert both.wait() == [0, 0], both.printed()
        assert "continuing from step " in both.printed()[0]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    assert run("plot", [url]) == 0  # of what is there; nothing of it was here
    folder = working_folder(url)
    assert capsys.readouterr().out.split() == [str(folder / "curves.png")]
    train(
        parse(argv, prog="train").job,
        data_dir=data_dir,
        run_dir=tmp_path / "alone",
        devices=jax.devices()[:4],
        mesh=MESH,
        stop_after=stop,
        console=Console(quiet=True),
    )
    assert assert_same_run(folder, tmp_path / "alone") == stop


@pytest.mark.exhaustive
def test_processes_with_disks_of_their_own_are_refused_in_a_line(tmp_path):
    """The second has another cache than the first: what it writes the first would not find."""
    write_tiny_set(tmp_path / "data")
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(tmp_path / "data"), *words(FLAGS)]
    argv += ["--mesh", MESH, "--run-dir", f"bucket://{tmp_path / 'there'}"]
    with Together(argv, tmp_path, program=PROGRAM, caches=[tmp_path / "a", tmp_path / "b"]) as both:
        assert both.wait() == [2, 2], both.printed()
        for said in both.printed():
            assert "process 1: " in said
            assert "on a disk that they share: set XDG_CACHE_HOME to one" in said


def test_one_process_has_nobody_to_wait_for(tmp_path):
    see_same(tmp_path)
    assert not list(tmp_path.iterdir())
