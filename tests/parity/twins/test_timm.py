"""timm's own models: their state dicts load as they are, and they compute the same function."""

from typing import Any

import jax
import numpy as np
import pytest
import torch

import vit_jax.weights
import vit_torch
import vit_torch.weights
from tests.support.peers import (
    EXACT,
    call_jax,
    import_timm,
    nchw,
    random_images,
    redrawn,
    run_both,
    run_jax,
    run_torch,
)
from tests.support.share import rarely
from tests.support.tiny import TINY, error
from vit_config import ViTConfig, preset
from vit_jax.functional import get_params, make_merge
from vit_jax.leaves import leaves
from vit_jax.loss import cross_entropy

pytestmark = pytest.mark.slow

timm = import_timm()

NAMES = [
    "vit_tiny_patch16_224",
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "vit_large_patch16_224",
    "vit_huge_patch14_224",
]

# timm's arguments -> our fields; the rest is that of `SHRUNK` and of `tiny.TINY`
SHRUNK = {
    "img_size": (21, 15), "patch_size": (7, 5), "in_chans": 3, "embed_dim": 30, "depth": 2,
    "num_heads": 5, "mlp_ratio": 44 / 30, "num_classes": 11,
}  # fmt: skip
SHRUNKEN = {
    "plain": ({}, {}),
    "registers": ({"reg_tokens": 2}, {"register_tokens": 2}),
    "layer scale": ({"init_values": 0.1}, {"layer_scale": 0.1}),
    "positions of patches only": (
        {"reg_tokens": 2, "no_embed_class": True},
        {"register_tokens": 2, "pos_embed_prefix": "none"},
    ),
    "mean pool": ({"global_pool": "avg"}, {"pool": "mean", "final_norm": "post_pool"}),
    "mean pool, norm before it": (
        {"global_pool": "avg", "fc_norm": False, "class_token": False},
        {"pool": "mean", "class_token": False},
    ),
    "pre norm": ({"pre_norm": True}, {"pre_norm": True, "patch_bias": False}),
    "no qkv bias": ({"qkv_bias": False}, {"qkv_bias": False}),
    "no head": ({"num_classes": 0}, {"num_classes": 0}),
    "everything": (
        {
            "reg_tokens": 2, "no_embed_class": True, "init_values": 0.1, "global_pool": "avg",
            "pre_norm": True, "qkv_bias": False,
        },
        {
            "register_tokens": 2, "pos_embed_prefix": "none", "layer_scale": 0.1, "pool": "mean",
            "final_norm": "post_pool", "pre_norm": True, "patch_bias": False, "qkv_bias": False,
        },
    ),
}  # fmt: skip


def create(name: str) -> Any:
    """A model of timm's, without values; its own huge model has no head by default."""
    with torch.device("meta"):
        return timm.create_model(name, pretrained=False, num_classes=1000)


def shrunk(case: str) -> tuple[Any, ViTConfig]:
    """A small model of timm's and the schema that describes it."""
    theirs, ours = SHRUNKEN[case]
    with torch.device("meta"):
        model = timm.models.VisionTransformer(**{**SHRUNK, **theirs})
    return model, TINY.replace(depth=2, **ours)


def fill(model: Any, arrays: dict) -> Any:
    """Put our arrays into a model of timm's, every one of them and nothing else."""
    state = {name: torch.tensor(array) for name, array in arrays.items()}
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval()


def shapes(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_names_and_shapes_are_timms(name):
    theirs, cfg = shapes(create(name)), preset(name).replace(num_classes=1000)
    assert shapes(vit_torch.weights.abstract_model(cfg)) == theirs
    twin = {leaf.name: leaf.shape for leaf in leaves(vit_jax.weights.abstract_model(cfg))}
    assert twin == theirs


def test_the_preset_says_what_timms_default_config_says():
    model, cfg = create("vit_base_patch16_224"), preset("vit_base_patch16_224")
    assert model.blocks[0].norm1.eps == model.norm.eps == cfg.norm_eps == 1e-6
    assert isinstance(model.blocks[0].mlp.act, torch.nn.GELU)
    assert model.blocks[0].mlp.act.approximate == "none"
    assert cfg.act == "gelu"
    assert model.default_cfg["input_size"] == (cfg.in_channels, *cfg.image_size)


@pytest.mark.slow
@pytest.mark.exhaustive  # a quarter of a minute; small ones are compared every time
def test_vit_base_is_timms_vit_base():
    cfg = preset("vit_base_patch16_224")
    arrays, images = redrawn(cfg), random_images(cfg, 1)
    peer = fill(create("vit_base_patch16_224"), arrays)
    ours = vit_torch.weights.abstract_model(cfg)
    ours.load_state_dict(peer.state_dict(), strict=True, assign=True)  # as it is, no mapping
    with torch.no_grad():
        features = peer.forward_features(nchw(images))
        logits = peer.forward_head(features)
        output = ours.eval()(nchw(images))
    del peer, ours
    twin = run_jax(cfg, arrays, images)
    for name, mine in {"torch": output, "jax": twin}.items():
        assert error(mine.logits, logits) <= EXACT, name
        tokens = np.concatenate([mine.prefix_tokens, mine.patch_tokens], axis=1)
        assert error(tokens, features) <= EXACT, name


@pytest.mark.parametrize(
    "case", rarely(SHRUNKEN, ("everything", "mean pool, norm before it", "no head", "registers"))
)
def test_a_small_model_is_timms(case):
    model, cfg = shrunk(case)
    assert shapes(vit_torch.weights.abstract_model(cfg)) == shapes(model)
    arrays, images = redrawn(cfg), random_images(cfg)
    peer = fill(model, arrays)
    with torch.no_grad():
        features = peer.forward_features(nchw(images))
        logits = peer.forward_head(features)
        pooled = peer.forward_head(features, pre_logits=True)
    for twin, output in run_both(cfg, arrays, images).items():
        assert error(output.logits, logits) <= EXACT, twin
        assert error(output.pooled, pooled) <= EXACT, twin
        tokens = np.concatenate([*map(np.asarray, (output.prefix_tokens, output.patch_tokens))], axis=1)
        assert error(tokens, features) <= EXACT, twin


def test_our_attention_weights_are_those_that_timm_applies():
    model, cfg = shrunk("registers")
    arrays, images = redrawn(cfg), random_images(cfg)
    peer, seen = fill(model, arrays), []
    for block in peer.blocks:
        block.attn.attn_drop.register_forward_hook(lambda *call: seen.append(call[2]))
    with torch.no_grad():
        peer(nchw(images))
    for run in (run_jax, run_torch):
        ours = run(cfg, arrays, images, return_attention=True).attention
        assert len(ours) == len(seen) == 2
        for weights, theirs in zip(ours, seen, strict=True):
            assert error(weights, theirs) <= EXACT


@pytest.mark.parametrize("case", ["registers", "everything"])
def test_gradients_are_timms(case):
    model, cfg = shrunk(case)
    arrays, images = redrawn(cfg), random_images(cfg)
    labels = np.array([3, 7])
    peer, ours = fill(model, arrays), vit_torch.from_arrays(cfg, arrays)
    target = torch.tensor(labels)
    torch.nn.functional.cross_entropy(peer(nchw(images)), target).backward()
    torch.nn.functional.cross_entropy(ours(nchw(images)).logits, target).backward()

    def grads_of(model, images):
        merge, params = make_merge(cfg), get_params(model)
        return jax.grad(lambda p: cross_entropy(merge(p)(images).logits, labels).mean())(params)

    twin = call_jax(cfg, arrays, grads_of, images)
    parts = {leaf.name: leaf for leaf in leaves(vit_jax.weights.abstract_model(cfg))}
    for name, parameter in peer.named_parameters():
        assert error(ours.get_parameter(name).grad, parameter.grad) <= EXACT, name
        assert error(parts[name].to_common(twin[name]), parameter.grad) <= EXACT, name
