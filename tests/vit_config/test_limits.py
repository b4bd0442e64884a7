"""What a machine does to a run: Ctrl-C where Python cannot raise, no memory, a folder that is gone."""

import gc
import resource
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from parity.cli import dispatch
from parity.cli.dispatch import exit_status_of, in_one_line
from vit_config import processes
from vit_config.files.atomic import write_atomically
from vit_config.terminal import let_interrupts_through
from vit_train.folder.unwritten import unwritten


def test_an_interrupt_within_the_garbage_collector_arrives_later_and_prints_nothing(monkeypatch, capfd):
    said = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    let_interrupts_through()
    todo = [KeyboardInterrupt, RuntimeError]

    def callback(*_: object) -> None:
        if todo:
            raise todo.pop()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever ran in this process
    gc.callbacks.append(callback)
    try:
        gc.collect()  # which calls back before and after
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(5)
        assert time.monotonic() - began < 4  # what waits is woken
    finally:
        gc.callbacks.remove(callback)
        signal.signal(signal.SIGINT, before)
    assert [each.exc_type for each in said] == [RuntimeError]  # which nobody asked for
    assert capfd.readouterr() == ("", "")


def test_too_little_memory_to_map_is_one_line(monkeypatch, capsys):
    processes.check_mapped()
    limits = SimpleNamespace(RLIMIT_AS=9, RLIM_INFINITY=-1, getrlimit=lambda _: (2**31, 2**31))
    monkeypatch.setattr(processes, "resource", limits)

    def load() -> int:
        raise ImportError("libtorch.so: failed to map segment from shared object")

    def other() -> int:
        raise ImportError("cannot import name 'a' from 'b'")

    assert in_one_line(lambda: processes.check_mapped() or 0, "train") == 2
    assert in_one_line(load, "train") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "may map 2.0 GiB (ulimit -v), but JAX and PyTorch take 3" in first
    assert "no memory left to load a library into" in second
    assert in_one_line(other, "train") == 70


def test_a_run_whose_folder_is_gone_is_not_told_to_make_room(tmp_path):
    checkpoints = tmp_path / "run" / "checkpoints"
    (checkpoints / "4.orbax-checkpoint-tmp-0" / "state").mkdir(parents=True)  # as Orbax does
    assert "deleted or moved" in str(unwritten(checkpoints, "No such file or directory"))
    assert not checkpoints.parent.exists()
    checkpoints.mkdir(parents=True)
    (tmp_path / "run" / "run.json").touch()
    said = str(unwritten(checkpoints, "No space left on device"))
    assert "GB are free there. There is none before it" in said
    (checkpoints / "3").mkdir()
    assert "The checkpoints before it are whole" in str(unwritten(checkpoints, "No space left"))


@pytest.mark.parametrize("size", [2000, 100_000])  # one is still in Python's buffer
def test_a_disk_that_is_full_is_told_with_the_file(tmp_path, size):
    (tmp_path / "old").write_text("old")
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, kept[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            write_atomically(tmp_path / "old", bytes(size))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert raised.value.filename == str(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["old"]


def test_an_interrupted_process_does_not_wait_for_a_compiler(monkeypatch, capsys):
    left = []
    monkeypatch.setattr(dispatch.os, "_exit", left.append)
    monkeypatch.setitem(sys.modules, "jaxlib", SimpleNamespace())
    monkeypatch.setattr(sys, "argv", ["parity", "list"])

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatch.importlib, "import_module", interrupted)
    assert dispatch.main() == 130
    assert dispatch.main(["list"]) == 130  # a call, not a process
    assert left == [130]
    assert exit_status_of(2) == 2
    monkeypatch.delitem(sys.modules, "jaxlib")
    assert exit_status_of(130) == 130
    assert left == [130]
    assert capsys.readouterr().err == "parity list: interrupted\n" * 2
