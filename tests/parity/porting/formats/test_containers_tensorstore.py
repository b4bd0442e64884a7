"""Big Vision's folders against the code of JAX that it writes them with, and Flax's own checkpoints."""

from __future__ import annotations

import logging

import flax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.serialization import msgpack_serialize
from jax.experimental.array_serialization import serialization

from parity.porting.formats import open_container
from parity.porting.formats.flatten import nested
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.container_files import loaded
from tests.support.convert_cases import arrays_of, refused, run
from tests.support.tiny import TINY
from vit_config import MissingFileError, WeightsError, write_weights

CFG = TINY.replace(
    norm_eps=1e-6, depth=2, act="gelu_tanh", pos_embed_resize="bilinear_corners", image_size=(21, 10)
)
GIVEN = {"image_size": CFG.image_size}


def params_of(folder, dialect):
    """A model's parameters as Google's code has them in memory."""
    own = folder / "own.safetensors"
    cfg = CFG if dialect == "google" else CFG.replace(pos_embed_prefix="none")
    write_weights(own, cfg, arrays_of(cfg))
    convert(own, to=dialect, out=folder / "source.npz")
    tensors = loaded(open_container(folder / "source.npz").tensors)
    return nested({name: jnp.asarray(each) for name, each in tensors.items()}, "/"), read_checkpoint(own)


def save(tree, folder):
    """As Big Vision's ``tssave``."""
    folder.mkdir()
    names, values = [], []

    def walk(value, name):
        if isinstance(value, dict):
            for key, child in value.items():
                walk(child, f"{name}~{key}" if name else key)
        else:
            names.append(str(folder / name))
            values.append(jnp.asarray(value))

    walk(tree, "")
    manager = serialization.GlobalAsyncCheckpointManager()
    manager.serialize_with_paths(values, names, on_commit_callback=lambda *_: None)
    manager.wait_until_finished()


def assert_same(actual, own):
    assert actual.config == own.config
    for name, stored in own.arrays.items():
        np.testing.assert_array_equal(actual.arrays[name].load(), stored.load())


@pytest.fixture(scope="module")
def big_vision(tmp_path_factory):
    """The folder of a run, as its train.py leaves it."""
    work = tmp_path_factory.mktemp("bv")
    params, own = params_of(work, "big-vision")
    run_folder = work / "run"
    run_folder.mkdir()
    odd = {
        "zeros": jnp.zeros((3, 2)),
        "half": jnp.full((2, 3), 1.5, jnp.bfloat16),
        "none": jnp.zeros((0, 3)),
    }
    state = {"params": params, "opt": {"0": {"mu": params}}, "chrono": {"step": 7, **odd}}
    save({"params": {"head": {"bias": jnp.ones(3)}}}, run_folder / "checkpoint.bv-000000003-tmp")
    save(state, run_folder / "checkpoint.bv-000000007")
    (run_folder / "checkpoint.bv-LAST").write_text("000000007")
    return run_folder, own


@pytest.mark.parametrize("name", ["", "checkpoint.bv", "checkpoint.bv-000000007"])
def test_big_visions_folders(name, big_vision, tmp_path):
    folder, own = big_vision
    container = open_container(folder / name)
    assert container.kind == "tensorstore"
    assert container.files == (folder / "checkpoint.bv-000000007",)
    every = loaded(container.tensors)
    assert every["chrono/step"] == 7
    assert every["chrono/half"].dtype.name == "bfloat16"
    assert every["chrono/half"].tolist() == [[1.5] * 3] * 2
    assert every["chrono/zeros"].tolist() == [[0.0] * 2] * 3
    assert every["chrono/none"].shape == (0, 3)
    checkpoint = read_checkpoint(folder / name, given=GIVEN)
    assert_same(checkpoint, own)
    assert checkpoint.notes[0] == "stripped 'params' from every name"
    convert(checkpoint, to="big-vision", out=tmp_path / "again.npz")


def test_a_pointer_to_nothing(tmp_path):
    (tmp_path / "checkpoint.bv-LAST").write_text("000000009")
    for path in (tmp_path, tmp_path / "checkpoint.bv"):
        with pytest.raises(MissingFileError, match=r"checkpoint\.bv-000000009: no such folder, but"):
            open_container(path)


def damage(name, how, content, tmp_path):
    save({"params": {"w": jnp.arange(600.0).reshape(20, 30)}}, tmp_path / "run")
    place = tmp_path / "run" / "params~w" / name
    if how == "gone":
        place.unlink()
    else:
        place.write_bytes(content(place.read_bytes()))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "how", "content", "said"),
    [
        ("0.0", "gone", None, "0 of 1 chunks are there; copy the checkpoint again"),
        ("0.0", "cut", lambda old: old[:-20], "params~w"),
        (".zarray", "cut", lambda old: old[:-20], "params~w"),
        (".zarray", "other", lambda old: old.replace(b"[20,30]", b"[20,-3]"), "params~w"),
        (".zarray", "other", lambda old: old.replace(b'"<f4"', b'"|O"'), "params~w"),
    ],
)
def test_damaged_arrays(name, how, content, said, tmp_path):
    folder = damage(name, how, content, tmp_path)
    with pytest.raises(WeightsError, match=said) as caught:
        loaded(open_container(folder).tensors)
    assert "\n" not in str(caught.value)


@pytest.fixture(params=["msgpack", "orbax"])
def kind(request):
    """What Flax saves its checkpoints as."""
    before = flax.config.flax_use_orbax_checkpointing
    flax.config.update("flax_use_orbax_checkpointing", request.param == "orbax")
    yield request.param
    flax.config.update("flax_use_orbax_checkpointing", before)


@pytest.mark.filterwarnings("ignore:Flax Checkpointing:DeprecationWarning")
def test_googles_training_checkpoints(kind, tmp_path, capsys):
    """A tuple of parameters, the optimiser's state and the step, as its train.py saves it."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    from flax.training import checkpoints

    params, own = params_of(tmp_path, "google")
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9, accumulator_dtype="bfloat16")
    )
    work = tmp_path / "work"
    for step in (5, 10):
        state = (params, tx.init(params), step)
        checkpoints.save_checkpoint(str(work), state, step, keep=2)
    assert open_container(work).kind == f"{kind} (step 10, the newest of 2)"
    for path in (work, work / "checkpoint_10"):
        checkpoint = read_checkpoint(path, given=GIVEN)
        assert_same(checkpoint, own)
        assert checkpoint.notes[0] == "stripped '0' from every name"
    flags = ("--to", "parity", "--set", "image_size=21x10")
    status, _, err = run(capsys, "convert", work, tmp_path / "out.safetensors", *flags)
    assert (status, err) == (0, "")
    refused(capsys, tmp_path, ["already exists"], "convert", work, tmp_path / "out.safetensors", *flags)


def test_a_train_state_of_flax(tmp_path):
    params, own = params_of(tmp_path, "google")
    state = {"step": 3, "params": {"params": params}, "opt_state": {"0": {"mu": {"params": params}}}}
    (tmp_path / "state.msgpack").write_bytes(msgpack_serialize(state))
    checkpoint = read_checkpoint(tmp_path / "state.msgpack", given=GIVEN)
    assert_same(checkpoint, own)
    assert checkpoint.notes[0] == "stripped 'params/params' from every name"
