"""The JAX twin as Flax's guide saves it, and what a state of variables puts around anybody's names."""

from itertools import combinations, product

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

import vit_jax
from parity.porting.dialects.records.nnx import DIALECTS
from parity.porting.dialects.table import bind_ours
from parity.porting.formats import open_container
from parity.porting.reading.checkpoint import read_checkpoint
from parity.porting.writing.conversion import convert
from tests.support.convert_cases import arrays_of
from tests.support.flips import BASE, FLIPS
from tests.support.tiny import TINY
from vit_config import ConfigError, write_weights
from vit_config.errors import UnstatedError
from vit_config.parameters import parameters

SAID = {
    "num_heads": TINY.num_heads, "norm_eps": TINY.norm_eps, "act": "gelu", "pool": "class", "rope": None,
    "image_size": TINY.image_size, "block": "pre_norm", "head_activation": "none",
    "attention_scale": None, "v_norm": False, "centre_pixels": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def arrays():
    return arrays_of(TINY)


@pytest.fixture(scope="module")
def flat(arrays):
    """The state of a twin: each variable's array by its path."""
    state = nnx.to_flat_state(nnx.state(vit_jax.from_arrays(TINY, arrays)))
    return {tuple(map(str, path)): np.asarray(variable.get_value()) for path, variable in state}


def assert_read(path, arrays, *notes, **options):
    checkpoint = read_checkpoint(path, given=SAID, **options)
    assert checkpoint.dialect.name == "parity-nnx"
    assert checkpoint.config == TINY.replace(dynamic_image_size=checkpoint.config.dynamic_image_size)
    assert checkpoint.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(checkpoint.arrays[name].load(), array, err_msg=name)
    for note in notes:
        assert note in checkpoint.notes


def test_a_state_that_orbax_saved_is_read_and_what_it_leaves_open_is_asked_for(arrays, tmp_path):
    model = vit_jax.from_arrays(TINY, arrays)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", nnx.state(model))
        checkpointer.save(tmp_path / "pure", nnx.to_pure_dict(nnx.state(model)))
    assert_read(tmp_path / "state", arrays, "took 'value' out of the names")
    assert_read(tmp_path / "pure", arrays)
    with pytest.raises(UnstatedError) as caught:
        read_checkpoint(tmp_path / "state")
    assert set(SAID) <= {*caught.value.fields, "image_size"}


@pytest.mark.parametrize(("joint", "leaf"), [*product("./", ("", "value", "raw_value"))])
def test_an_archive_of_a_state_is_read_whatever_joins_its_names(joint, leaf, flat, arrays, tmp_path):
    names = {joint.join((*path, leaf) if leaf else path): array for path, array in flat.items()}
    np.savez(tmp_path / "model.npz", **names)
    assert_read(tmp_path / "model.npz", arrays, *([f"took {leaf!r} out of the names"] if leaf else []))


def test_a_model_beside_its_optimizer_is_found(flat, arrays, tmp_path):
    names = {"/".join(("model", *path, "value")): array for path, array in flat.items()}
    names |= {"/".join(("opt_state", "0", "mu", *path, "value")): array for path, array in flat.items()}
    np.savez(tmp_path / "model.npz", **names, step=np.asarray(3))
    assert_read(tmp_path / "model.npz", arrays, "stripped 'model' from every name")


def test_whose_names_they_are_does_not_matter(arrays, tmp_path):
    write_weights(tmp_path / "own.safetensors", TINY, arrays)
    cfg = TINY.replace(act="gelu_tanh")
    write_weights(tmp_path / "tanh.safetensors", cfg, arrays)
    for source, to, out in (("tanh", "google-linen", "google.npz"), ("own", "timm", "timm.safetensors")):
        convert(tmp_path / f"{source}.safetensors", to=to, out=tmp_path / out)
        plain = {n: each.load() for n, each in open_container(tmp_path / out).tensors.items()}
        joint = "/" if to == "google-linen" else "."
        for other in "./":
            boxed = {f"{n.replace(joint, other)}{other}value": each for n, each in plain.items()}
            np.savez(tmp_path / "boxed.npz", **boxed)
            given = {name: value for name, value in SAID.items() if name != "act" or to == "timm"}
            given["in_channels"] = TINY.in_channels  # timm names do not say where channels are
            checkpoint = read_checkpoint(tmp_path / "boxed.npz", given={**given, "rope": None})
            assert checkpoint.dialect.name in ("google-linen", "timm-vit")
            for name, array in arrays.items():
                np.testing.assert_array_equal(checkpoint.arrays[name].load(), array)


def test_every_parameter_of_every_schema_has_a_row():
    """Each pair of switches; a parameter that is new in the schema is new in the table."""
    tried, bound_already = 0, set()
    for (one, a), (two, b) in combinations(FLIPS.items(), 2):
        try:
            cfg = BASE.replace(**{**a.companions, **b.companions, one: a.value, two: b.value})
        except ConfigError:
            continue
        tried += 1
        shapes = parameters(cfg)
        if (cfg.depth, *shapes) in bound_already:
            continue
        bound_already.add((cfg.depth, *shapes))
        bound, left = bind_ours(DIALECTS[0].tables[0], cfg, shapes)
        assert not left, cfg
        assert len(bound) == len(shapes)
    assert tried > 1500
