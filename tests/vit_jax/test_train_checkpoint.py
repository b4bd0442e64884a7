"""Checkpoints: what is restored is what was saved, or the damage is seen and an older one used."""

import hashlib
import json
import subprocess
import sys
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_config import CheckpointError, TrainingError
from vit_jax.train.checkpoint import Checkpoints, from_named, to_named
from vit_jax.train.description import Handler, seal
from vit_jax.train.digests import describe, differing, digest, join_descriptions
from vit_train.folder.checkpoints import KEEP, DamagedError


class State(NamedTuple):
    step: np.ndarray
    params: dict
    moments: tuple


def make_state(step):
    rng = np.random.default_rng(step)
    params = {
        "blocks.0.mlp.fc1.weight": rng.standard_normal((31, 47)).astype(np.float32),
        "blocks.0.mlp.fc1.bias": rng.standard_normal(47),
    }
    return State(np.int32(step), params, ((), {"mu": np.zeros((3, 5), np.float32)}))


def abstract():
    return make_state(0)


def assert_equal(a, b):
    a, b = to_named(a), to_named(b)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_array_equal(a[name], b[name])


@pytest.fixture
def saved(tmp_path):
    """A folder with checkpoints of the steps 3, 6, 9."""
    with Checkpoints(tmp_path / "run", run_id="one") as checkpoints:
        for step in (3, 6, 9):
            checkpoints.save(step, make_state(step))
    return tmp_path / "run"


def restore(folder, run_id="one", like=None):
    said = []
    with Checkpoints(folder, run_id=run_id) as checkpoints:
        step, state = checkpoints.restore_latest(abstract() if like is None else like, warn=said.append)
    return step, state, said


def biggest_file(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)


def test_the_newest_comes_back_exactly(saved):
    step, state, said = restore(saved)
    assert (step, said) == (9, [])
    assert_equal(state, make_state(9))


def test_nothing_to_restore(tmp_path):
    assert restore(tmp_path / "new") == (None, None, [])


def test_only_the_newest_few_are_kept(tmp_path):
    with Checkpoints(tmp_path, run_id="one") as checkpoints:
        for step in range(1, KEEP + 3):
            checkpoints.save(step, make_state(step))
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(3, KEEP + 3))


def test_a_step_is_never_overwritten(tmp_path):
    with Checkpoints(tmp_path, run_id="one") as checkpoints:
        checkpoints.save(3, make_state(3))
        with pytest.raises(CheckpointError, match=r"3: already exists"):
            checkpoints.save(3, make_state(4))
    assert_equal(restore(tmp_path)[1], make_state(3))


def flip(folder):
    path = biggest_file(folder / "state")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(folder):
    path = biggest_file(folder / "state")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(folder):
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def change_description(folder):
    path = folder / "meta" / "metadata"
    meta = json.loads(path.read_text())
    meta["step"] = 4
    path.write_text(json.dumps(meta))


@pytest.mark.parametrize("damage", [flip, truncate, empty, change_description])
def test_a_damaged_checkpoint_is_skipped(saved, damage):
    damage(saved / "9")
    step, state, said = restore(saved)
    assert step == 6
    assert_equal(state, make_state(6))
    assert len(said) == 1
    assert "9 is damaged and skipped" in said[0]
    assert "\n" not in said[0]
    assert (saved / "damaged-9").is_dir()  # kept, but out of the way:
    with Checkpoints(saved, run_id="one") as checkpoints:
        checkpoints.save(9, make_state(9))
    assert restore(saved)[0] == 9


def test_a_wrong_byte_names_the_tensor(saved, monkeypatch):
    """Orbax compresses, so that a flipped byte is mostly unreadable; this one is read."""
    read = ocp.StandardCheckpointHandler.restore

    def restore_wrongly(handler, folder, **options):
        restored = read(handler, folder, **options)
        if folder.parent.name == "9":
            restored["params.blocks.0.mlp.fc1.bias"].view(np.uint8)[100] ^= 1
        return restored

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "restore", restore_wrongly)
    step, _, said = restore(saved)
    assert step == 6
    assert len(said) == 1
    assert said[0].endswith(": the bytes of params.blocks.0.mlp.fc1.bias do not match their digest")


def test_what_devices_hold_apart_is_digested_apart(tmp_path, monkeypatch):
    """As where several hosts train together, of which each writes what its devices hold."""
    mesh = jax.make_mesh((4, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
    places = {"split": P(("tensor", "fsdp")), "twice": P("tensor"), "whole": P(), "number": P()}
    arrays = {name: np.arange(48.0, dtype=np.float32).reshape(8, 6) for name in places}
    arrays["number"] = np.int32(7)
    state = {name: jax.device_put(x, NamedSharding(mesh, places[name])) for name, x in arrays.items()}
    described = describe(state)()
    assert [len(described[name][2]) for name in places] == [8, 2, 1, 1]
    assert described["number"] == [[], "int32", [[[], digest(arrays["number"])]]]
    with Checkpoints(tmp_path, run_id="one") as checkpoints:
        checkpoints.save(1, state)
    with Checkpoints(tmp_path, run_id="one") as checkpoints:
        assert_equal(checkpoints.restore(1, arrays), arrays)
        # as two hosts read it, or one with fewer devices: whole parts on each
        fewer = jax.make_mesh((4,), ("fsdp",), devices=jax.devices()[:4], axis_types=(AxisType.Auto,))
        wanted = {
            name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(fewer, place))
            for (name, x), place in zip(arrays.items(), (P("fsdp"), P(), P(), P()), strict=True)
        }
        restored = checkpoints.restore(1, wanted)
        assert all(restored[name].sharding == wanted[name].sharding for name in places)
        assert_equal({name: np.asarray(x) for name, x in restored.items()}, arrays)
        # a part that lies on two devices is read with all of its tensor
        wanted["twice"] = jax.ShapeDtypeStruct(
            (8, 6), "float32", sharding=NamedSharding(fewer, P("fsdp"))
        )
        restored = checkpoints.restore(1, wanted)
        assert isinstance(restored["twice"], np.ndarray)
        assert_equal({name: np.asarray(x) for name, x in restored.items()}, arrays)
        read = ocp.StandardCheckpointHandler.restore

        def restore_wrongly(*given, **options):
            restored = read(*given, **options)
            wrong = np.asarray(restored["split"]).copy()
            wrong[3, 1] += 1
            place = getattr(restored["split"], "sharding", None)
            return {**restored, "split": wrong if place is None else jax.device_put(wrong, place)}

        monkeypatch.setattr(ocp.StandardCheckpointHandler, "restore", restore_wrongly)
        for like in (arrays, wanted):
            with pytest.raises(DamagedError, match=r"the bytes of split\[3:4, 0:6\] do not match"):
                checkpoints.restore(1, like)


def test_what_processes_described_apart_is_one_description(tmp_path):
    """As every process writes a file, of the parts that it has."""
    halves = [[["w", [[[0, 2], [0, 3]], "a"]]], [["w", [[[2, 5], [0, 3]], "b"]]]]
    parts = [{name: [[5, 3], "float32", [digests]] for name, digests in half} for half in halves]
    whole = {"w": [[5, 3], "float32", [halves[0][0][1], halves[1][0][1]]]}
    assert join_descriptions(parts) == join_descriptions(parts[::-1]) == whole
    with pytest.raises(ValueError, match="parts of w have no digest"):
        join_descriptions(parts[:1])
    for number, part in enumerate(parts):
        head = {"step": 3, "run_id": "one", "processes": 2, "tensors": part}
        name = "metadata" if number == 0 else f"metadata.{number}"
        (tmp_path / name).write_text(json.dumps({**head, "seal": seal(head)}))
    assert Handler().restore(epath.Path(tmp_path))["tensors"] == whole
    other = tmp_path / "metadata.1"
    other.write_text(other.read_text().replace('"b"', '"c"'))
    with pytest.raises(ValueError, match="changed after writing"):
        Handler().restore(epath.Path(tmp_path))
    other.unlink()
    with pytest.raises(FileNotFoundError):
        Handler().restore(epath.Path(tmp_path))


def test_checkpoints_of_older_versions_have_sha_256():
    array = np.arange(6.0).reshape(2, 3)
    tensors = {"w": [[2, 3], "float64", hashlib.sha256(array.tobytes()).hexdigest()]}
    assert differing("w", {"w": array}, tensors) == []
    assert differing("w", {"w": array + 1}, tensors) == ["w"]


def test_the_manager_is_closed_and_the_first_error_stays(tmp_path, monkeypatch):
    closed = []

    def fail(_):
        raise OSError("File too large")

    monkeypatch.setattr(ocp.CheckpointManager, "wait_until_finished", fail)
    monkeypatch.setattr(ocp.CheckpointManager, "close", lambda _: closed.append(1))
    with (
        pytest.raises(CheckpointError, match=r"cannot be written \(File too large\)"),
        Checkpoints(tmp_path, run_id="one"),
    ):
        pass
    assert len(closed) == 1
    with (
        pytest.raises(TrainingError, match="the loss is nan") as caught,
        Checkpoints(tmp_path, run_id="one"),
    ):
        raise TrainingError("the loss is nan")
    assert str(caught.value) == "the loss is nan"
    assert "File too large" in caught.value.__notes__[0]
    assert len(closed) == 2


def test_an_empty_folder_is_not_a_checkpoint(saved):
    (saved / "12").mkdir()
    assert restore(saved)[0] == 9


def test_nothing_whole_is_an_error(saved):
    for step in (3, 6, 9):
        flip(saved / str(step))
    with pytest.raises(CheckpointError, match="all 3 checkpoints are damaged"):
        restore(saved)


def test_another_run_is_refused(saved):
    with pytest.raises(CheckpointError, match="belongs to run one, this is run two"):
        restore(saved, run_id="two")


@pytest.mark.parametrize(
    ("mine", "theirs", "error"),
    [
        (None, "process 1: of run two", CheckpointError),
        (CheckpointError("of run two"), None, CheckpointError),
        (DamagedError("a bit"), None, DamagedError),
        (DamagedError("a bit"), "process 1: of run two", CheckpointError),
    ],
    ids=["theirs", "mine", "damage", "both"],
)
def test_all_processes_say_the_same_whoever_found_it(saved, monkeypatch, mine, theirs, error):
    """Each takes part in both rounds: one that left would have the others wait."""
    rounds = []

    def gather(sentence):
        rounds.append(sentence)
        return sentence or (theirs if len(rounds) == 1 else None)

    def read(step, abstract):
        if mine:
            raise mine

    monkeypatch.setattr("vit_jax.train.checkpoint.said_by_any", gather)
    with Checkpoints(saved, run_id="one") as checkpoints:
        monkeypatch.setattr(checkpoints, "_read", read)
        with pytest.raises(error):
            checkpoints.restore(9, abstract())
        assert len(rounds) == (1 if error is CheckpointError else 2)


def test_another_model_is_refused(saved):
    like = abstract()
    like.params["blocks.0.mlp.fc1.bias"] = np.zeros(46)
    like.params["head.bias"] = np.zeros(3)
    with pytest.raises(CheckpointError, match=r"head.bias: not in the checkpoint") as caught:
        restore(saved, like=like)
    assert "fc1.bias: [[47], 'float64'] in the checkpoint, [[46], 'float64'] in the model" in str(
        caught.value
    )


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from vit_config import CheckpointError
from vit_jax.train.checkpoint import Checkpoints

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, none = resource.getrlimit(resource.RLIMIT_FSIZE)
try:
    with Checkpoints(Path(sys.argv[1]), run_id="one") as checkpoints:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, none))
        checkpoints.save(12, {"a": np.random.default_rng(0).standard_normal(100_000)})
except CheckpointError as error:
    print(error, end="")
resource.setrlimit(resource.RLIMIT_FSIZE, (none, none))  # for coverage, which writes at the end
"""


def test_a_full_disk_loses_nothing(saved):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(saved)], capture_output=True, text=True, check=True
    )
    assert "the last checkpoint cannot be written" in done.stdout
    assert " GB are free there. The checkpoints before it are whole" in done.stdout
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stdout
    assert "\n" not in done.stdout
    assert done.stderr == ""
    assert restore(saved)[0] == 9


def test_names_lead_back_to_the_state():
    state = make_state(5)
    assert_equal(from_named(state, to_named(state)), state)
    assert set(to_named(state)) == {
        "step",
        "params.blocks.0.mlp.fc1.weight",
        "params.blocks.0.mlp.fc1.bias",
        "moments.1.mu",
    }
