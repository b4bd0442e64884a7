"""Conversions one behind the other are one; where weights come from is kept; little is in memory."""

import hashlib
import random
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import parity.porting.opening.opened
from evidence.checkpoint_mutations.samples import write_sample
from parity.measure.redraw import redraw
from parity.porting.dialects import dialects, find_dialects
from parity.porting.dialects.dialect import NEUTRAL
from parity.porting.dialects.rewrites import REWRITES, CannotRewriteError, ModelState, canonical
from parity.porting.formats import Stored, open_container
from parity.porting.reading.checkpoint import Checkpoint, read_checkpoint
from parity.porting.writing.conversion import convert
from parity.porting.writing.conversion_plan import plan
from vit_config import ConfigError, Preprocess, ViTConfig, write_weights
from vit_config.parameters import parameters

pytestmark = pytest.mark.quick

WRITTEN = [dialect.name for dialect in dialects() if dialect.writes]

WIDEST = {
    "patch_embed": "conv", "mlp": "swiglu_packed", "pos_embed": "learned", "pos_embed_prefix": "none",
    "patch_bias": True, "qkv_bias": True, "k_bias": True, "attention_out_bias": True, "mlp_bias": True,
    "head_bias": True, "layer_scale": 1.0, "layer_scale_on": "both", "num_kv_heads": None,
    "final_norm": "pre_pool", "pool": "class_mean", "pos_embed_grid": None,
}  # fmt: skip
"""For each rewriting the side on which nothing is left out, and nothing may be in two places."""


def widest(source: Checkpoint) -> ModelState:
    """The model with everything written out that a rewriting may leave out.

    Two files hold the same model, up to rewritings that are exact, if these are equal bit by bit.
    """
    state = ModelState(canonical(source.config), source.arrays)
    for name, value in WIDEST.items():
        if getattr(state.config, name) != value:
            try:
                state = REWRITES[name](state, (value,))
            except CannotRewriteError:
                continue
    return ModelState(canonical(state.config), state.arrays)


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    actual, expected = widest(one), widest(other)
    for name in ViTConfig.fields():
        if name not in (*NEUTRAL, "layer_scale"):
            assert getattr(actual.config, name) == getattr(expected.config, name), name
    assert actual.arrays.keys() == expected.arrays.keys()
    for name, stored in actual.arrays.items():
        wanted = expected.arrays[name]
        assert stored.dtype == wanted.dtype
        assert stored.load().tobytes() == wanted.load().tobytes(), name


def holds(source: Checkpoint, name: str, folder: Path) -> bool:
    try:
        plan(source, name)
        if name.startswith("timm"):  # whose folder needs a constructor of this model
            convert(source, to=name, out=folder / "tried", force=True)
    except ConfigError:
        return False
    return True


def stops(source: Checkpoint, folder: Path, rng: random.Random) -> tuple[str, str]:
    """A dialect on the way and one to end in; there and back by the project's own if there are none."""
    names = [name for name in WRITTEN if name not in (source.dialect.name, "parity")]
    names = rng.sample(names, len(names))
    for index, name in enumerate(names):
        if not holds(source, name, folder):
            continue
        middle = read_checkpoint(convert(source, to=name, out=folder / "middle", force=True).path)
        for last in names[index + 1 :]:
            if holds(source, last, folder) and holds(middle, last, folder):
                return name, last
        if holds(middle, source.dialect.name, folder):
            return name, source.dialect.name
    return "parity", source.dialect.name


@pytest.mark.parametrize(
    "name",
    [
        # a proof of each dialect's own, there and back, is in dialects/
        pytest.param(n, marks=[pytest.mark.exhaustive] if i % 3 else [pytest.mark.slow] * (i % 5 > 0))
        for i, n in enumerate(WRITTEN)
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_two_conversions_are_one(name: str, seed: int, tmp_path: Path) -> None:
    sample = write_sample(find_dialects(name)[0], tmp_path)
    source = read_checkpoint(sample.folder / sample.entry)
    middle, last = stops(source, tmp_path, random.Random(f"{seed} {name}"))
    first = convert(source, to=middle, out=tmp_path / "first")
    second = read_checkpoint(convert(first.path, to=last, out=tmp_path / "second").path)
    at_once = read_checkpoint(convert(source, to=last, out=tmp_path / "at once").path)
    assert_same(second, at_once)
    assert_same(second, source)
    containers = {find_dialects(each)[0].container for each in (name, middle, last)}
    if not containers & {"msgpack", "hdf5", "equinox"}:  # which have no header
        assert second.preprocess == at_once.preprocess == source.preprocess
        assert second.license == source.license == "apache-2.0"


def own_file(path: Path, preprocess: Preprocess | None = None, **changes) -> ViTConfig:
    """A random model that timm's, Google's and transformers' ViT all are."""
    fields = {
        "image_size": 24, "patch_size": 8, "hidden_size": 30, "depth": 3, "num_heads": 5, "mlp_dim": 44,
        "num_classes": 7, "act": "gelu_tanh", **changes,
    }  # fmt: skip
    cfg = ViTConfig(**fields)
    arrays = {n: redraw(n, p.kind, p.shape, seed=0) for n, p in parameters(cfg).items()}
    write_weights(path, cfg, {n: array.astype(np.float32) for n, array in arrays.items()}, preprocess)
    return cfg


@pytest.mark.parametrize("last", ["google.npz", "google.safetensors"])
def test_every_hop_is_kept(last: str, tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    own_file(own, Preprocess(license="mit", crop_mode="squash"))
    pth = convert(own, to="timm-vit", out=tmp_path / "timm.pth").path
    npz = convert(pth, to="google", out=tmp_path / last).path
    folder = convert(npz, to="hf-vit", out=tmp_path / "hf").path
    checkpoint = read_checkpoint(folder)
    files = (own, pth, npz)
    assert [hop.source for hop in checkpoint.hops] == [path.name for path in files]
    assert [hop.dialect for hop in checkpoint.hops] == ["parity", "timm-vit", "google"]
    assert [hop.digest for hop in checkpoint.hops] == [
        hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    ]
    assert {hop.license for hop in checkpoint.hops} == {checkpoint.license} == {"mit"}
    assert_same(checkpoint, read_checkpoint(own))


def test_a_licence_that_is_stated_goes_along(tmp_path: Path) -> None:
    own_file(tmp_path / "own.safetensors")
    first = convert(tmp_path / "own.safetensors", to="timm-vit", out=tmp_path / "a.pth", license="mit")
    last = convert(first.path, to="hf-vit", out=tmp_path / "hf")
    assert [hop.license for hop in last.hops] == ["mit", "mit"]


# Streaming


@pytest.fixture
def loads(monkeypatch) -> Counter[str]:
    """How often each tensor of a file is read."""
    counts: Counter[str] = Counter()

    def counted(name: str, stored: Stored) -> Stored:
        def load() -> np.ndarray:
            counts[name] += 1
            return stored.load()

        return replace(stored, load=load)

    def opened(path: Path):
        container = open_container(path)
        tensors = {name: counted(name, stored) for name, stored in container.tensors.items()}
        return replace(container, tensors=tensors)

    monkeypatch.setattr(parity.porting.opening.opened, "open_container", opened)
    return counts


WAYS = [("big-vision-scan", "timm-vit"), ("timm-vit", "hf-vit"), ("hf-vit", "google"),
        ("big-vision", "big-vision-scan")]  # fmt: skip


def file_of(name: str, folder: Path, **changes) -> Path:
    if name.startswith("big-vision"):
        changes |= {"pool": "map", "class_token": False, "pool_mlp_dim": changes.get("mlp_dim", 44)}
    own_file(folder / "own.safetensors", **changes)
    return convert(folder / "own.safetensors", to=name, out=folder / "source").path


@pytest.mark.parametrize(("first", "last"), WAYS)
def test_a_tensor_is_read_once(first: str, last: str, loads: Counter[str], tmp_path: Path) -> None:
    source = file_of(first, tmp_path)
    loads.clear()
    convert(source, to=last, out=tmp_path / "target")
    assert len(loads) > 20
    assert set(loads.values()) == {1}


@pytest.mark.parametrize(("first", "last"), WAYS)
def test_few_tensors_are_in_memory(first: str, last: str, tmp_path: Path) -> None:
    source = file_of(first, tmp_path, hidden_size=160, mlp_dim=640, depth=16, num_classes=10)
    read = read_checkpoint(source)
    tracemalloc.start()
    try:
        converted = convert(read, to=last, out=tmp_path / "target")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # of a file of stacks one stack, and what it is read and written through
    largest = max(s.nbytes for s in (*read.tensors.values(), *converted.target.tensors.values()))
    assert peak < max(converted.nbytes / 3, largest + 3 * 2**20)
    assert largest < converted.nbytes / 2
