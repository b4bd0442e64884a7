"""The loops of docs/own_loop.md are run as they stand, and what they write is read."""

import re
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from torch.utils.data import DataLoader, TensorDataset

import parity
from parity.measure.tolerance import LIMITS, RATIO, epsilon
from parity.porting.reading.libraries.peers import import_timm
from tests.support.convert_cases import arrays_of
from tests.support.tiny import TINY, error
from vit_config import ConfigError, InputError, Preprocess, write_weights
from vit_config.errors import UnstatedError

import_timm()  # declares the operators without which torchvision does not load on some machines
import timm  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "own_loop.md"
PART = re.compile(r"<!-- (\w+)\.py -->\n```python\n(.*?)```", re.DOTALL)
SCRIPTS = {}
for name, part in PART.findall(PAGE.read_text(encoding="utf-8")):
    SCRIPTS[name] = SCRIPTS.get(name, "") + part
CFG = TINY.replace(depth=1, hidden_size=40, num_classes=5, dropout_embed=0.2)
PIXELS = Preprocess(mean=(0.5, 0.4, 0.3), std=(0.25,) * 3, image_size=CFG.image_size)
draw = np.random.default_rng(0)
IMAGES = draw.normal(size=(16, *CFG.image_size, CFG.in_channels)).astype(np.float32)
LABELS = draw.integers(3, size=16)
OUTPUT, MODULES = (LIMITS["float32"][level] * epsilon("float32") for level in ("output", "modules"))


@pytest.fixture(autouse=True)
def start(tmp_path, monkeypatch):
    """A folder with the page's first checkpoint; returns its arrays."""
    monkeypatch.chdir(tmp_path)
    arrays = arrays_of(CFG)
    write_weights("own.safetensors", CFG, arrays, PIXELS)
    parity.convert("own.safetensors", to="parity", out="start.safetensors")
    return arrays


def run(script, **given):
    """Run one script of the page, and return its names."""
    names = dict(given)
    exec(compile(SCRIPTS[script], f"{PAGE}:{script}", "exec"), names)
    return names


def tensors():
    """The batch as PyTorch has it."""
    return torch.from_numpy(IMAGES).permute(0, 3, 1, 2), torch.from_numpy(LABELS)


def assert_trained(start, *, frozen=False):
    """The file has the new head and other weights, those of the patches where they were trained."""
    loaded = parity.load("trained.safetensors", framework="torch")
    assert loaded.config.num_classes == 3
    now = {name: each.numpy() for name, each in loaded.model.state_dict().items()}
    assert not np.array_equal(now["blocks.0.attn.qkv.weight"], start["blocks.0.attn.qkv.weight"])
    patches = np.array_equal(now["patch_embed.proj.weight"], start["patch_embed.proj.weight"])
    assert patches == frozen
    return loaded


def test_jax(start):
    names = run("loop_jax", batches=lambda: [(IMAGES, LABELS)] * 2)
    loaded = assert_trained(start, frozen=True)
    pictures = np.zeros((2, 30, 20, 3), np.uint8)
    assert names["loaded"].prepare(pictures).shape == (2, *CFG.image_size, 3)
    assert loaded.class_names == ("cat", "dog", "owl")
    assert loaded.preprocess.mean == PIXELS.mean
    model, optimizer, rngs = names["model"], names["optimizer"], names["rngs"]
    assert optimizer.step[...] == 2
    split = model.blocks[0].mlp.fc1.kernel[...].sharding
    assert split.num_devices == 8
    assert split.spec != P()
    theirs = timm.create_model("local-dir:trained", pretrained=True).eval()
    expected = theirs(tensors()[0]).detach().numpy()
    assert error(model.logits(IMAGES), expected) <= 2 * OUTPUT  # each may be that far from float64
    assert_reads("run/state", loaded)
    batch, after = jax.device_put((IMAGES, LABELS), names["rows"]), []
    for _ in range(2):  # the next step from the saved state, with its dropout and its moments
        with ocp.StandardCheckpointer() as checkpointer:
            state = checkpointer.restore(names["saved"], nnx.state((model, optimizer, rngs)))
        nnx.update((model, optimizer, rngs), state)
        names["train_step"](model, optimizer, rngs, *batch)
        after.append(np.asarray(model.head.kernel[...]))
    np.testing.assert_array_equal(*after)


def test_images_on_a_mesh_as_jax_makes_it_get_a_sentence(start):
    mesh = jax.make_mesh((8,), ("data",))
    images = jax.device_put(IMAGES, NamedSharding(mesh, P(("data",))))
    model = parity.load("start.safetensors", framework="jax").model
    with pytest.raises(InputError, match=r"explicit axes data of a mesh; make it with .*Auto,\) \* 1"):
        jax.eval_shape(model.logits, images)
    whole = jax.device_put(IMAGES, NamedSharding(mesh, P()))
    assert jax.eval_shape(model.logits, whole).shape == (16, 5)
    automatic = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    for given, said in ((mesh, r"jax\.set_mesh .* explicit axes data,.*Auto,\) \* 1"), (automatic, "")):
        with jax.set_mesh(given):
            spread = parity.load("start.safetensors", framework="jax", mesh=given).model
            if not said:
                assert nnx.jit(lambda model, x: model.logits(x))(spread, IMAGES).shape == (16, 5)
                continue
            with pytest.raises(InputError, match=said):
                nnx.jit(lambda model, x: model.logits(x))(spread, IMAGES)


def test_a_model_is_loaded_onto_a_mesh_as_jax_makes_it(start):
    mesh = jax.make_mesh((4, 2), ("data", "model"))  # explicit axes
    loaded = parity.load("start.safetensors", framework="jax", mesh=mesh)
    kernel = loaded.model.blocks[0].mlp.fc1.kernel[...]
    assert len(kernel.sharding.device_set) == 8
    assert kernel.addressable_shards[0].data.size == kernel.size // 8
    whole = parity.load("start.safetensors", framework="jax")
    twin = parity.load("start.safetensors", framework="torch").model.double()
    exact = twin.logits(tensors()[0].double()).detach()
    split, alone = (error(each.of_batch(IMAGES), exact) for each in (loaded, whole))
    assert split <= max(RATIO * alone, epsilon("float32"))  # sums that are split are rounded otherwise
    assert max(split, alone) <= OUTPUT
    with pytest.raises(ConfigError, match="takes no mesh"):
        parity.load("start.safetensors", framework="torch", mesh=mesh)


def test_blocks_are_seen_over_a_jit(start):
    model = parity.load("start.safetensors", framework="jax").model
    wanted = model.forward_intermediates(IMAGES, indices=[0], norm=True)
    by_nnx = nnx.jit(lambda model, x: model.forward_intermediates(x, indices=[0], norm=True))
    by_jax = jax.jit(model.forward_intermediates, static_argnames=("indices", "norm"))
    for result in (by_nnx(model, IMAGES), by_jax(IMAGES, indices=(0,), norm=True)):
        assert max(jax.tree.leaves(jax.tree.map(error, result, wanted))) <= 2 * MODULES


def test_torch(start):
    names = run("loop_torch", batches=lambda: [tensors()] * 2)
    assert_trained(start, frozen=True)
    assert names["model"].training
    assert parity.read_checkpoint("trained").dialect.name == "hf-vit"


@pytest.mark.skipif(find_spec("lightning") is None, reason="Lightning is no dependency; make loops")
@pytest.mark.filterwarnings("ignore")  # of Lightning
def test_lightning(start):
    run("loop_lightning", loader=DataLoader(TensorDataset(*tensors()), batch_size=8))
    loaded = assert_trained(start)
    assert_reads("lightning.ckpt", loaded)


@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is no dependency; make loops")
@pytest.mark.filterwarnings("ignore")  # of accelerate
def test_trainer(start):
    images, labels = tensors()
    run(
        "loop_trainer", dataset=[{"images": x, "labels": y} for x, y in zip(images, labels, strict=True)]
    )
    loaded = assert_trained(start)
    assert_reads(max(Path("run").glob("checkpoint-*")), loaded)


def assert_reads(path, loaded):
    """What the library saved on the way is the same model, once the schema is stated."""
    with pytest.raises(UnstatedError) as asked:
        parity.read_checkpoint(path)
    given = {name: getattr(loaded.config, name) for name in asked.value.fields}
    actual = parity.load(path, framework="torch", given=given).model.state_dict()
    for name, each in loaded.model.state_dict().items():
        torch.testing.assert_close(actual[name], each, rtol=0, atol=0)
