"""What models are made of: FLOPs by hand, parameters of both twins, and what is stored of presets."""

import functools
import subprocess
import sys

import pytest
import torch

import vit_jax.leaves
import vit_jax.weights
import vit_torch
import vit_torch.leaves
import vit_torch.weights
from parity.twins.anatomy import ModulePart, _watch, anatomy, fold
from tests.support.share import rarely
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import PRESETS, ConfigError, InputError, ViTConfig, preset
from vit_config.costs import Cost, costs

pytestmark = pytest.mark.slow

LARGEST = "vit_7b_patch16_dinov3"
COSTED = ("digits", "gemma4_vit_167m", "naflexvit_base_patch16_map", "test_vit4")


@functools.cache
def by_path(cfg: ViTConfig) -> dict[str, ModulePart]:
    return {part.path: part for part in anatomy(cfg)}


# FLOPs: two per multiply-add

N, T, D, M, H, C = 9, 10, 30, 44, 5, 11  # patches, tokens, width, hidden width, heads, classes of TINY
PATCH = 2 * N * (7 * 5 * 3) * D
QKV, PRODUCTS, PROJ = 2 * T * D * 3 * D, 2 * 2 * T * T * D, 2 * T * D * D
MLP = 2 * 2 * T * D * M
HEAD = 2 * D * C


def of_more_tokens(tokens: int) -> int:
    """FLOPs of TINY's three blocks for another number of tokens."""
    return 3 * (2 * tokens * D * 4 * D + 2 * 2 * tokens**2 * D + 2 * 2 * tokens * D * M)


BY_HAND = {
    "plain": PATCH + 3 * (QKV + PRODUCTS + PROJ + MLP) + HEAD,
    "linear_hwc": PATCH + 3 * (QKV + PRODUCTS + PROJ + MLP) + HEAD,
    "swiglu": PATCH + 3 * (QKV + PRODUCTS + PROJ + 3 * 2 * T * D * M) + HEAD,
    "swiglu_packed": PATCH + 3 * (QKV + PRODUCTS + PROJ + 3 * 2 * T * D * M) + HEAD,
    # 6 heads of width 5; keys and values have 6, 2 and 3 of them, products still have 6
    "grouped": PATCH
    + sum(2 * T * D * (30 + 2 * 5 * kv) for kv in (6, 2, 3))
    + 3 * (PRODUCTS + PROJ + MLP)
    + HEAD,
    # 4 heads of width 7 are 28 wide
    "narrow_heads": PATCH + 3 * (2 * T * D * 3 * 28 + 2 * 2 * T * T * 28 + 2 * T * 28 * D + MLP) + HEAD,
    "tanh_before_head": PATCH + 3 * (QKV + PRODUCTS + PROJ + MLP) + 2 * 17 * (D + C),
    "parallel": PATCH + 3 * (2 * T * D * (M + 3 * D) + PRODUCTS + PROJ + 2 * T * M * D) + HEAD,
    # two attentions: queries and keys of half a width each, values whole in both
    "differential": PATCH + 3 * (QKV + 2 * (T * T * D + 2 * T * T * D) + PROJ + MLP) + HEAD,
    "per_head": PATCH + 3 * (3 * 2 * T * D * (D // H) + PRODUCTS + PROJ + MLP) + HEAD,
    "branches": PATCH + 3 * 2 * (QKV + PRODUCTS + PROJ + MLP) + HEAD,
    # two register tokens; the head sees two vectors
    "class_mean": PATCH + of_more_tokens(12) + 2 * HEAD,
    # a distillation and two register tokens; two heads
    "distilled": PATCH + of_more_tokens(13) + 2 * HEAD,
    # no class token; one query, whose products see every token, and an MLP of its own on one token
    "map": PATCH
    + of_more_tokens(9)
    + (2 * D * D + 2 * 9 * D * 2 * D + 2 * 2 * 9 * D + 2 * D * D + 2 * 2 * D * 37)
    + HEAD,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_flops_by_hand(name):
    assert by_path(variant(name))[""].flops == BY_HAND[name]


def test_flops_of_vit_base_by_hand():
    N, T, D = 196, 197, 768
    block = 2 * T * D * 3 * D + 2 * T * T * D + 2 * T * T * D + 2 * T * D * D + 2 * 2 * T * D * 4 * D
    flops = 2 * N * 16 * 16 * 3 * D + 12 * block + 2 * D * 1000
    assert anatomy(preset("vit_base_patch16_224"))[0].flops == flops == 35_127_656_448


@pytest.mark.slow
@pytest.mark.parametrize("name", rarely(VARIANTS, BY_HAND))
def test_a_module_costs_what_is_below_it_and_its_own(name):
    """Attention's products are computed by a module itself, and a table resized for each image."""
    parts = by_path(cfg := variant(name))
    for path, part in parts.items():
        dot = f"{path}." if path else ""
        below = [each for each in parts.values() if each.path and each.depth == part.depth + 1]
        below = [each for each in below if each.path.startswith(dot)]
        own = part.flops - sum(each.flops for each in below)
        products = part.type.endswith(("Attention", "ParallelBlock", "AttentionPool"))
        products |= not path and cfg.pos_embed_grid is not None
        assert own == 0 or not below or (products and own > 0), path
        assert part.parameters == part.own_parameters + sum(each.parameters for each in below), path


def test_flops_grow_with_the_batch_and_shapes_show_it():
    one, three = anatomy(TINY), anatomy(TINY, batch_size=3)
    assert [part.flops for part in three] == [3 * part.flops for part in one]
    assert three[0].input_shape == (3, 3, 21, 15)
    assert three[0].output_shape == (3, 11)


def test_another_image_size_is_taken_or_built_for():
    taken, built = variant("leading_rows"), TINY
    small = {"image_size": (14, 10)}  # 4 patches
    expected = 2 * 4 * 105 * D + of_more_tokens(5) + HEAD
    assert anatomy(taken, **small)[0].flops == anatomy(built, **small)[0].flops == expected
    assert anatomy(taken, **small)[0].parameters == costs(taken).parameters
    assert anatomy(built, **small)[0].parameters == costs(built).parameters - 5 * D
    with pytest.raises(InputError, match="not divisible by patch_size"):
        anatomy(taken, image_size=(15, 10))
    with pytest.raises(ConfigError, match="not divisible by patch_size"):
        anatomy(built, image_size=(15, 10))


# Parts


QUICK = {"plain", "grouped", "differential", "map"}  # what `make quick` looks at


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.exhaustive]) for n in VARIANTS]
)
def test_parameters_are_those_of_both_twins(name):
    cfg = variant(name)
    parts = by_path(cfg)
    count = vit_jax.leaves.count_parameters(vit_jax.weights.abstract_model(cfg))
    assert parts[""].parameters == count
    actual = {
        f"{part.path}.{each}" if part.path else each: shape
        for part in parts.values()
        for each, shape in part.own.items()
    }
    model = vit_torch.weights.abstract_model(cfg)
    assert actual == {leaf.name: leaf.shape for leaf in vit_torch.leaves.leaves(model)}
    assert sum(part.own_parameters for part in parts.values()) == parts[""].parameters


def test_shapes():
    parts = by_path(TINY)
    assert list(parts)[:3] == ["", "patch_embed", "patch_embed.proj"]
    assert (parts[""].depth, parts["blocks"].depth, parts["blocks.0.attn.qkv"].depth) == (0, 1, 4)
    assert parts["patch_embed.proj"].output_shape == (1, 30, 3, 3)
    assert parts["blocks"].input_shape is parts["blocks"].output_shape is None  # a list, never called
    assert parts["blocks.0"].output_shape == (1, 10, 30)  # of a tuple, its first tensor
    assert parts["patch_drop"].output_shape == (1, 10, 30)
    assert parts["head"].type == "Linear"


def test_modules_that_are_not_called_with_an_image():
    bias = by_path(variant("rel_pos_bias"))["blocks.1.attn.rel_pos_bias"]
    assert (bias.input_shape, bias.output_shape) == (None, (5, 10, 10))
    assert bias.own == {"table": (28, 5)}
    unused = by_path(variant("no_head"))["head_drop"]
    assert (unused.input_shape, unused.output_shape, unused.flops) == (None, None, 0)


@pytest.mark.parametrize(
    ("name", "path", "own"),
    [
        ("plain", "", ["cls_token", "pos_embed"]),
        ("differential", "blocks.2.attn", ["lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"]),
        ("map", "attn_pool", ["latent"]),
        ("rope_mixed", "rope", ["freqs"]),
        ("no_k_bias", "blocks.0.attn", ["q_bias", "v_bias"]),
    ],
)
def test_parameters_that_are_no_layers_are_their_owners_own(name, path, own):
    assert list(by_path(variant(name))[path].own) == own


def test_a_module_that_is_called_twice_costs_twice():
    first, second = (torch.nn.Linear(*sizes, device="meta") for sizes in [(30, 11), (11, 30)])
    calls = _watch(torch.nn.Sequential(first, second, first), torch.empty(2, 30, device="meta"))
    product = 2 * 2 * 30 * 11
    assert (calls["0"].flops, calls["1"].flops, calls[""].flops) == (2 * product, product, 3 * product)
    assert (calls["0"].input_shape, calls["0"].output_shape) == ((2, 30), (2, 11))


def test_blocks_fold_only_where_they_are_alike():
    runs = {run.first.path: run for run in fold(anatomy(TINY))}
    assert (runs["blocks.0"].last, runs["blocks.0"].count) == ("blocks.2", 3)
    assert "blocks.1" not in runs
    assert runs["blocks.0.mlp.fc1"].count == 1
    branches = {run.first.path: run for run in fold(anatomy(variant("branches")))}
    assert (branches["blocks.0.attns.0"].count, branches["blocks.0"].count) == (2, 3)
    grouped = fold(anatomy(variant("grouped")))
    assert {run.count for run in grouped} == {1}
    assert [run.first for run in grouped] == anatomy(variant("grouped"))


@pytest.mark.slow
def test_the_largest_preset_takes_no_memory():
    code = (
        "from resource import getrusage, RUSAGE_SELF as me\n"
        "from parity.twins.anatomy import anatomy\n"
        "from vit_config import preset\n"
        "anatomy(preset('digits'))\n"
        "before = getrusage(me).ru_maxrss\n"
        f"print(anatomy(preset({LARGEST!r}))[0].parameters, getrusage(me).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    parameters, kilobytes = map(int, done.stdout.split())
    assert parameters == 6_716_030_976  # 27 GB in float32
    assert kilobytes < 200_000


# The same, known without a model


@pytest.mark.parametrize("name", VARIANTS)
def test_costs_are_those_of_the_model(name):
    model = by_path(cfg := variant(name))[""]
    assert costs(cfg) == Cost(model.parameters, model.flops)


@pytest.mark.slow
@pytest.mark.parametrize("name", rarely(sorted(PRESETS), COSTED))
def test_costs_of_presets_are_those_of_the_model(name):
    model = anatomy(PRESETS[name])[0]
    assert costs(PRESETS[name]) == Cost(model.parameters, model.flops)


def test_costs_of_vit_base():
    assert costs(preset("vit_base_patch16_224")) == Cost(86_567_656, 35_127_656_448)
