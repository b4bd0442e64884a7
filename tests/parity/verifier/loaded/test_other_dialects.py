"""Names that do not tell: values find what is joined and stacked, and what is exchanged all the same."""

from __future__ import annotations

import numpy as np
import pytest

from parity.verifier.loaded import judge
from parity.verifier.loaded.names import pair_names, tokens
from parity.verifier.loaded.numbers import looks_drawn

pytestmark = pytest.mark.quick

WIDTH, HIDDEN, DEPTH = 12, 23, 4


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.fixture
def model():
    """Blocks with joined queries, keys and values, and two norms."""
    leaves = {"head.weight": draw(7, WIDTH)}
    for i in range(DEPTH):
        leaves |= {
            f"blocks.{i}.qkv.weight": draw(3 * WIDTH, WIDTH, seed=i),
            f"blocks.{i}.proj.weight": draw(WIDTH, WIDTH, seed=i),
            f"blocks.{i}.fc.weight": draw(HIDDEN, WIDTH, seed=i),
            f"blocks.{i}.norm1.weight": draw(WIDTH, seed=2 * i),
            f"blocks.{i}.norm2.weight": draw(WIDTH, seed=2 * i + 1),
        }
    return leaves


WORDS = {"proj": "out", "fc": "up", "norm1": "LayerNorm_0", "norm2": "LayerNorm_1"}


def in_flax(leaves, *, stacked=False):
    """The same by another library's names and layouts, apart or stacked."""
    tree = {"classifier/kernel": leaves["head.weight"].T}
    for name, each in leaves.items():
        if not name.startswith("blocks"):
            continue
        _, i, word, _ = name.split(".")
        parts = zip(("query", "key", "value"), np.split(each, 3), strict=True) if word == "qkv" else [
            (WORDS[word], each)
        ]  # fmt: skip
        tree |= {f"encoder/layer_{i}/{part}/kernel": np.ascontiguousarray(one.T) for part, one in parts}
    if not stacked:
        return tree
    together = {n: each for n, each in tree.items() if "layer_" not in n}
    for name in [n.replace("layer_0/", "") for n in tree if "layer_0/" in n]:
        together[name] = np.stack([tree[name.replace("/", f"/layer_{i}/", 1)] for i in range(DEPTH)])
    return together


def exchange(leaves, one, other):
    leaves[one], leaves[other] = leaves[other], leaves[one]


@pytest.mark.parametrize("stacked", [False, True])
def test_a_file_of_another_library_is_found_by_its_values(model, stacked):
    report = judge(model, in_flax(model, stacked=stacked))
    assert report, report.to_text()
    assert "4 joined" in report.sentence
    young = {n: np.ones_like(each) if "norm" in n else each for n, each in model.items()}
    assert judge(young, in_flax(young, stacked=stacked))


MISTAKES = {
    "blocks": ("blocks.2.proj.weight", "out of the order of the others"),
    "norms": ("blocks.2.norm1.weight", "which is another one's in the other blocks"),
    "queries": ("blocks.0.qkv.weight", "queries, where keys belong|keys, where queries belong"),
    "turned": ("blocks.2.proj.weight", ""),
}


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("way", MISTAKES)
def test_what_is_exchanged_is_found_without_names(model, way, stacked):
    file = in_flax(model, stacked=stacked)
    name, words = MISTAKES[way]
    if way == "blocks":
        exchange(model, "blocks.1.proj.weight", "blocks.2.proj.weight")
    elif way == "norms":
        exchange(model, "blocks.2.norm1.weight", "blocks.2.norm2.weight")
    elif way == "turned":
        model[name] = np.ascontiguousarray(model[name].T)
    for i in range(DEPTH) if way == "queries" else ():
        q, k, v = np.split(model[f"blocks.{i}.qkv.weight"], 3)
        model[f"blocks.{i}.qkv.weight"] = np.concatenate([k, q, v])
    wrong = {each.name: each.words for each in judge(model, file).wrong}
    assert name in wrong
    assert any(word in wrong[name] for word in words.split("|"))
    assert len(wrong) == {"blocks": 2, "norms": 2, "queries": DEPTH, "turned": 1}[way]


def test_fewer_norms_of_ones_in_the_file_than_in_the_model(model):
    for i in range(DEPTH):
        model[f"blocks.{i}.norm1.weight"] = np.ones(WIDTH, np.float32)
    file = in_flax(model)
    assert judge(model, file)
    model["blocks.3.norm2.weight"] = np.ones(WIDTH, np.float32)
    assert "blocks.3.norm2.weight" in {each.name for each in judge(model, file).wrong}


def test_the_average_under_the_same_names_is_told_by_its_values():
    names = {"a.weight": (), "b.weight": ()}
    theirs = [f"{front}.{name}" for front in ("model", "model_ema") for name in names]
    for best in ("model", "model_ema"):
        pairs = pair_names(
            names, theirs, lambda found, best=best: found["a.weight"] == f"{best}.a.weight"
        )
        assert pairs == {name: f"{best}.{name}" for name in names}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("module.a.0.weight", ("a", "0", "weight")),
        ("_orig_mod.module.a.weight", ("a", "weight")),
        ("base_model.model.a.base_layer.weight", ("a", "weight")),
        ("base_model.model.a.lora_A.default.weight", ("a", "lora_A", "weight")),
        ("params/a/kernel", ("a", "kernel")),
        ("a/kernel/value", ("a", "kernel")),
        ("module", ("module",)),
    ],
)
def test_names_without_wrappers(name, parts):
    assert tokens(name) == parts


def test_what_an_initialiser_draws_is_recognised():
    rng = np.random.default_rng(0)
    cut = rng.standard_normal(40_000)
    for values, said in (
        (np.zeros(5), "all 0"),
        (np.full(5, 1e-5), "all 1e-05"),
        (rng.normal(0, 0.02, (96, 128)), "normal, deviation 0.02"),
        (rng.uniform(-0.1, 0.1, (96, 128)), "uniform within 0.1"),
        (cut[abs(cut) < 2][:12288].reshape(96, 128), "normal, cut, deviation 0.88"),
    ):
        assert looks_drawn(values.astype(np.float32)) == said
    rows = rng.normal(0, 1, (96, 128)) * rng.uniform(0.5, 1.5, (96, 1))
    for values in (rows, rng.standard_t(4, (96, 128)), rng.normal(0.1, 0.1, 4000), np.array(2.5)):
        assert looks_drawn(values) == ""
