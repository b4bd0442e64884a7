"""The paper equation by equation: its numbers, and torch's own encoder layer as the block."""

import math

import jax
import numpy as np
import pytest
import torch
from torch import nn

import vit_jax.leaves
import vit_jax.weights
import vit_torch
import vit_torch.weights
from tests.support.originals import Paper
from tests.support.peers import EXACT, call_jax, nchw, random_images, redrawn, run_both
from tests.support.tiny import error
from vit_config import preset
from vit_config.init import Draw, initial_draws
from vit_jax.functional import get_params, make_merge

pytestmark = pytest.mark.slow

PRESET = preset("vit_paper")
SMALL = PRESET.replace(
    image_size=(21, 15), patch_size=(7, 5), hidden_size=30, depth=2, num_heads=5, mlp_dim=44,
    num_classes=11,
)  # fmt: skip
HYBRID = PRESET.replace(  # the patch projection on a CNN's 14 x 14 feature map
    image_size=(14, 14), patch_size=(1, 1), in_channels=2048, hidden_size=20, depth=2, num_heads=5,
    mlp_dim=44, num_classes=11,
)  # fmt: skip

LAYER = {  # names of torch.nn.TransformerEncoderLayer -> ours
    "self_attn.in_proj_weight": "attn.qkv.weight",
    "self_attn.in_proj_bias": "attn.qkv.bias",
    "self_attn.out_proj.weight": "attn.proj.weight",
    "self_attn.out_proj.bias": "attn.proj.bias",
    "linear1.weight": "mlp.fc1.weight",
    "linear1.bias": "mlp.fc1.bias",
    "linear2.weight": "mlp.fc2.weight",
    "linear2.bias": "mlp.fc2.bias",
    "norm1.weight": "norm1.weight",
    "norm1.bias": "norm1.bias",
    "norm2.weight": "norm2.weight",
    "norm2.bias": "norm2.bias",
}


@pytest.fixture(scope="module")
def abstract() -> dict:
    """ViT-Base as both twins' trees, without a single value."""
    return {
        "jax": vit_jax.weights.abstract_model(PRESET),
        "torch": vit_torch.weights.abstract_model(PRESET),
    }


COUNT = {"jax": vit_jax.leaves.count_parameters, "torch": vit_torch.count_parameters}


def encoder_layer(cfg, arrays: dict, index: int) -> nn.TransformerEncoderLayer:
    """torch's own layer with the weights of one block."""
    layer = nn.TransformerEncoderLayer(
        cfg.hidden_size,
        cfg.num_heads,
        cfg.mlp_dim,
        dropout=0.1,
        activation="gelu",
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    layer.load_state_dict(
        {theirs: torch.tensor(arrays[f"blocks.{index}.{ours}"]) for theirs, ours in LAYER.items()}
    )
    return layer.eval()


@pytest.mark.parametrize("twin", ["jax", "torch"])
def test_parameter_counts(abstract, twin):
    model, count = abstract[twin], COUNT[twin]
    assert count(model.patch_embed) == 590_592
    assert count(model.blocks[0].attn) == 2_362_368
    assert [count(block) for block in model.blocks] == [7_087_872] * 12
    assert count(model) == 86_567_656


def test_the_block_has_as_many_parameters_as_torchs_layer(abstract):
    layer = nn.TransformerEncoderLayer(768, 12, 3072, norm_first=True, device="meta")
    ours = {leaf.name: leaf.shape for leaf in vit_torch.leaves.leaves(abstract["torch"].blocks[0])}
    assert {LAYER[name]: tuple(p.shape) for name, p in layer.named_parameters()} == ours


def test_the_patch_embedding_takes_115_76_million_multiply_adds(abstract):
    embedding = abstract["torch"].patch_embed
    windows = embedding(torch.empty(1, 3, 224, 224, device="meta")).shape[1]
    per_window = COUNT["torch"](embedding)  # a product per weight, an addition of the bias
    assert windows == 196
    assert f"{windows * per_window / 1e6:.2f}" == "115.76"


def test_shapes_of_vit_base(abstract):
    images = torch.empty(1, 3, 224, 224, device="meta")
    assert abstract["torch"].patch_embed(images).shape == (1, 196, 768)
    assert abstract["torch"].embed(images)[0].shape == (1, 197, 768)
    assert abstract["torch"](images).logits.shape == (1, 1000)

    def shapes(params, images):
        model = make_merge(PRESET)(params)
        return model.patch_embed(images), model.embed(images)[0], model(images).logits

    images = jax.ShapeDtypeStruct((1, 224, 224, 3), np.float32)
    traced = jax.eval_shape(shapes, get_params(abstract["jax"]), images)
    assert [x.shape for x in traced] == [(1, 196, 768), (1, 197, 768), (1, 1000)]


@pytest.mark.parametrize(
    "cfg",
    [
        SMALL,
        SMALL.replace(hidden_size=768, depth=1, num_heads=12, mlp_dim=3072),
    ],
    ids=["small", "base"],
)
def test_the_block_is_torchs_encoder_layer(cfg):
    arrays = redrawn(cfg)
    layer = encoder_layer(cfg, arrays, 0)
    x, seen = np.random.default_rng(1).standard_normal((2, 2, 7, cfg.hidden_size))

    theirs = layer(torch.tensor(x))
    theirs.backward(torch.tensor(seen))
    with torch.no_grad():
        fused = layer(torch.tensor(x))  # without gradients torch takes a fused path
    block = vit_torch.from_arrays(cfg, arrays).blocks[0]
    ours, _ = block(torch.tensor(x))
    ours.backward(torch.tensor(seen))

    def pull_back(model, x, seen):
        y, back = jax.vjp(lambda params: merge(params).blocks[0](x)[0], get_params(model))
        return y, back(seen)[0]

    merge = make_merge(cfg)
    twin, twin_grads = call_jax(cfg, arrays, pull_back, x, seen)

    expected = theirs.detach()
    assert error(fused, expected) <= EXACT
    assert error(ours.detach(), expected) <= EXACT
    assert error(twin, expected) <= EXACT
    axes = {leaf.name: leaf for leaf in vit_jax.leaves.leaves(vit_jax.weights.abstract_model(cfg))}
    torch_grads = dict(block.named_parameters())
    for theirs_name, name in LAYER.items():
        grad = layer.get_parameter(theirs_name).grad
        common = axes[f"blocks.0.{name}"].to_common(twin_grads[f"blocks.0.{name}"])
        assert error(torch_grads[name].grad, grad) <= EXACT, name
        assert error(common, grad) <= EXACT, name


@pytest.mark.parametrize("cfg", [SMALL, HYBRID], ids=["small", "hybrid"])
def test_the_whole_forward(cfg):
    arrays, images = redrawn(cfg), random_images(cfg)
    with torch.no_grad():
        expected = Paper(cfg).load(arrays).eval()(nchw(images))
    for twin, output in run_both(cfg, arrays, images).items():
        assert error(output.logits, expected) <= EXACT, twin


def test_the_hybrid_projects_each_point_of_the_feature_map():
    arrays, images = redrawn(HYBRID), random_images(HYBRID)
    weight = arrays["patch_embed.proj.weight"]
    assert weight.shape == (20, 2048, 1, 1)
    expected = images.reshape(2, 196, 2048) @ weight[:, :, 0, 0].T + arrays["patch_embed.proj.bias"]
    twin = call_jax(HYBRID, arrays, lambda model, x: model.patch_embed(x), images)
    ours = vit_torch.from_arrays(HYBRID, arrays).patch_embed(nchw(images)).detach()
    assert twin.shape == (2, 196, 20)
    assert error(twin, expected) <= EXACT
    assert error(ours, expected) <= EXACT


def test_the_head_is_a_norm_and_a_linear_layer_and_nothing_else_is_normed():
    outside = {name for name in redrawn(SMALL) if not name.startswith("blocks.")}
    assert outside == {
        "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias",
        "fc_norm.weight", "fc_norm.bias", "head.weight", "head.bias",
    }  # fmt: skip


def test_dropout_is_where_the_paper_has_it():
    assert PRESET.dropout_embed == PRESET.dropout_mlp_inner == PRESET.dropout_mlp_outer == 0.1
    assert PRESET.dropout_attention == PRESET.dropout_attention_out == 0.0


def test_attention_starts_as_torchs_module(abstract):
    parts = vit_torch.leaves.leaves(abstract["torch"])
    draws = initial_draws(
        PRESET, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    torch.manual_seed(0)
    module = nn.MultiheadAttention(768, 12)
    bound = math.sqrt(6 / (768 + 3 * 768))
    assert draws["blocks.0.attn.qkv.weight"] == (Draw("uniform", -bound, bound),)
    assert module.in_proj_weight.abs().max().item() == pytest.approx(bound, rel=1e-4)
    bound = 1 / math.sqrt(768)
    assert draws["blocks.0.attn.proj.weight"] == (Draw("uniform", -bound, bound),)
    assert module.out_proj.weight.abs().max().item() == pytest.approx(bound, rel=1e-4)
    assert (
        draws["blocks.0.attn.qkv.bias"] == draws["blocks.0.attn.proj.bias"] == (Draw("constant", 0.0),)
    )
    assert not module.in_proj_bias.any()
    assert not module.out_proj.bias.any()
    assert draws["cls_token"] == draws["pos_embed"] == (Draw("normal", 0.0, 1.0),)
