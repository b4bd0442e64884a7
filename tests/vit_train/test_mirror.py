"""Run folders on object storage: what is there is whole, and a run goes on from there anywhere."""

import shutil
import uuid

import fsspec
import numpy as np
import pytest

from parity.cli import run
from parity.cli.support.train_options import parse
from parity.runs.folder import read_run
from tests.support.tiny import SMALLEST
from tests.support.tiny_tfds import write_tiny_set
from vit_config import CheckpointError, ConfigError
from vit_train.folder.log import read_log
from vit_train.folder.mirror import Mirror, working_folder

FLAGS = {
    **SMALLEST,
    "recipe.batch-size": "8",
    "recipe.epochs": "40",
    "recipe.checkpoint-every-epochs": "1",
    "recipe.log-every-steps": "1",
    "recipe.ema": "0.9",
    "recipe.eval-every-epochs": "40",
}


@pytest.fixture
def bucket():
    """A folder of fsspec's storage in memory: no rename, no append, no flush."""
    name = f"memory://{uuid.uuid4().hex}"
    yield name
    storage = fsspec.filesystem("memory")
    if storage.exists(name):
        storage.rm(name, recursive=True)


@pytest.fixture
def mirror(bucket, tmp_path):
    return Mirror(f"{bucket}/run", tmp_path / "here")


def write(mirror, step, *, size=5):
    """What a run has after a checkpoint: a log, and a folder of two files."""
    folder = mirror.folder / "checkpoints" / str(step)
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "array").write_bytes(bytes([step]) * size)
    (folder / "meta").write_bytes(b"of it")
    (mirror.folder / "run.json").write_text('{"seed": 0}')
    (mirror.folder / "log.jsonl").write_text(f"until {step}\n")


def there(mirror):
    """The names of all objects."""
    system, root = mirror._system()
    return sorted(path[len(root) + 1 :] for path in system.find(root))


def steps(mirror):
    return sorted(path.name for path in (mirror.folder / "checkpoints").glob("*"))


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_run_goes_on_on_another_machine(framework, bucket, tmp_path, monkeypatch, capsys):
    write_tiny_set(tmp_path / "data")
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(tmp_path / "data")]
    argv += [word for name, value in FLAGS.items() for word in (f"--{name}", *value.split())]
    argv += ["--framework", framework]
    assert run("train", [*argv, "--run-dir", str(tmp_path / "alone"), "--stop-after", "8"]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    assert run("train", [*argv, "--run-dir", f"{bucket}/run", "--stop-after", "5"]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    capsys.readouterr()
    assert run("train", [*argv, "--run-dir", f"{bucket}/run", "--stop-after", "8"]) == 0
    assert f"run folder {bucket}/run, worked on in {tmp_path / 'second'}" in capsys.readouterr().out
    folders = tmp_path / "alone", working_folder(f"{bucket}/run")
    ours, theirs = (read_run(folder).state for folder in folders)
    assert ours.step == theirs.step == 8
    for part, arrays in ours.parts().items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, theirs.parts()[part][name], err_msg=f"{part} {name}")
    losses = [[e["loss"] for e in read_log(folder) if e["kind"] == "train"] for folder in folders]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 8


def test_weights_of_a_run_that_ended_are_there(mirror, tmp_path, monkeypatch):
    write_tiny_set(tmp_path / "data")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    flags = {**FLAGS, "recipe.epochs": "1", "recipe.warmup-epochs": "0", "recipe.eval-every-epochs": "1"}
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(tmp_path / "data")]
    argv += [word for name, value in flags.items() for word in (f"--{name}", *value.split())]
    assert run("train", [*argv, "--framework", "torch", "--run-dir", mirror.url]) == 0
    assert "weights.safetensors" in there(mirror)


def test_a_checkpoint_counts_once_all_of_it_is_there(mirror, monkeypatch):
    write(mirror, 3)
    with mirror.synchronised():
        pass
    write(mirror, 6)
    system, _ = mirror._system()
    put = system.put_file

    def refuse(path, name, **how):
        if name.endswith("6/meta"):
            raise OSError("no connection")
        put(path, name, **how)

    monkeypatch.setattr(type(system), "put_file", lambda _, *given, **how: refuse(*given, **how))
    with pytest.raises(CheckpointError, match=r"run: cannot be written \(no connection\); what the run"):
        mirror.send()
    assert "checkpoints/6/deep/array" in there(mirror)
    assert "checkpoints/6.complete" not in there(mirror)
    elsewhere = Mirror(mirror.url, mirror.folder.with_name("elsewhere"))
    elsewhere.fetch()
    assert steps(elsewhere) == ["3"]
    assert (elsewhere.folder / "checkpoints/3/deep/array").read_bytes() == b"\3" * 5
    mirror.fetch()  # where it was written nothing is lost
    assert steps(mirror) == ["3", "6"]
    monkeypatch.undo()
    mirror.send()
    elsewhere.fetch()
    assert steps(elsewhere) == ["3", "6"]
    assert (elsewhere.folder / "log.jsonl").read_text() == "until 6\n"
    # one of which an object is gone is none
    system.rm_file(f"{mirror._system()[1]}/checkpoints/6/meta")
    third = Mirror(mirror.url, mirror.folder.with_name("third"))
    third.fetch()
    assert steps(third) == ["3"]
    third.send()  # and what is left of it goes
    assert [name for name in there(third) if "6" in name] == []


def test_what_is_deleted_here_is_deleted_there(mirror):
    write(mirror, 3)
    mirror.send()
    shutil.rmtree(mirror.folder / "checkpoints" / "3")
    write(mirror, 6)
    (mirror.folder / "checkpoints" / "9.orbax-checkpoint-tmp").mkdir()
    (mirror.folder / ".lock").touch()
    mirror.send()
    names = ["checkpoints/6.complete", "checkpoints/6/deep/array", "checkpoints/6/meta"]
    assert there(mirror) == [*names, "log.jsonl", "run.json"]


def test_a_checkpoint_that_is_deleted_while_it_is_sent_is_sent(mirror, monkeypatch):
    """Else a run that deletes faster than it sends would have none there."""
    write(mirror, 3)
    system, _ = mirror._system()
    put = system.put_file

    def delete(path, name, **how):
        shutil.rmtree(mirror.folder / "checkpoints" / "3", ignore_errors=True)
        put(path, name, **how)

    monkeypatch.setattr(type(system), "put_file", lambda _, *given, **how: delete(*given, **how))
    mirror.send()
    mirror.send()
    elsewhere = Mirror(mirror.url, mirror.folder.with_name("elsewhere"))
    elsewhere.fetch()
    assert steps(elsewhere) == ["3"]


def test_another_run_there_replaces_what_is_here(mirror):
    write(mirror, 3)
    mirror.send()
    elsewhere = Mirror(mirror.url, mirror.folder.with_name("elsewhere"))
    write(elsewhere, 6)
    (elsewhere.folder / "run.json").write_text('{"seed": 1}')
    elsewhere.fetch()
    assert steps(elsewhere) == ["3"]
    assert (elsewhere.folder / "run.json").read_text() == '{"seed": 0}'


def test_one_at_a_time_works_in_a_folder(mirror):
    with (
        mirror.synchronised(),
        pytest.raises(CheckpointError, match="another process is training"),
        mirror.synchronised(),
    ):
        pass


def test_what_cannot_be_mirrored_is_one_line():
    with pytest.raises(ConfigError, match=r"nosuch://b/r: nosuch cannot be read .*vit-parity\["):
        parse(["--run-dir", "nosuch://b/r"], prog="train")


def test_commands_take_a_run_that_is_there(bucket, tmp_path, monkeypatch, capsys):
    write_tiny_set(tmp_path / "data")
    argv = ["--data", "tfds:tiny_rectangles", "--data-dir", str(tmp_path / "data")]
    argv += [word for name, value in FLAGS.items() for word in (f"--{name}", *value.split())]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    url = f"{bucket}/run"
    assert run("train", [*argv, "--framework", "torch", "--run-dir", url, "--stop-after", "4"]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    assert run("eval", [url, "--data-dir", str(tmp_path / "data")]) == 0
    assert run("convert-run", [url, str(tmp_path / "as_jax"), "--to", "jax"]) == 0
    ours, theirs = (read_run(folder).state for folder in (tmp_path / "as_jax", working_folder(url)))
    assert ours.step == theirs.step == 4
    capsys.readouterr()
    assert run("plot", [f"{bucket}/none"]) == 2
    assert f"{bucket}/none: no run.json there" in capsys.readouterr().err
