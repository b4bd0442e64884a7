"""What timm's users reach for on a model, with timm's own models beside: same weights, same meaning."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax
import vit_torch
from evidence.timm_sweep import peer
from tests.support.peers import EXACT, call_jax, nchw, random_images, redrawn
from tests.support.tiny import TINY, error
from vit_config import ConfigError, InputError
from vit_torch.weights import to_numpy

SIZES = {"img_size": (21, 14), "patch_size": 7, "embed_dim": 30, "depth": 3, "num_heads": 5}
PLAIN = TINY.replace(image_size=(21, 14), patch_size=(7, 7), mlp_dim=120, num_classes=11)
NO_CLASS = {"class_token": False, "pool": "mean", "final_norm": "post_pool"}

# name -> timm's architecture and arguments, and what the schema differs in
MODELS = {
    "class": ("vit_base_patch16_224", {}, {}),
    "registers": (
        "vit_base_patch16_224",
        {"reg_tokens": 2, "no_embed_class": True, "dynamic_img_size": True},
        {"register_tokens": 2, "pos_embed_prefix": "none", "dynamic_image_size": True},
    ),
    "mean": ("vit_base_patch16_224", {"class_token": False, "global_pool": "avg"}, NO_CLASS),
    "map": (
        "vit_base_patch16_224",
        {"class_token": False, "global_pool": "map"},
        {"class_token": False, "pool": "map"},
    ),
    "distilled": ("deit_tiny_distilled_patch16_224", {}, {"distill_token": True}),
}


class Sides:
    """A model of timm's, and both twins with its weights."""

    def __init__(self, name):
        architecture, arguments, changes = MODELS[name]
        self.theirs = peer.create_float64(architecture, **SIZES, num_classes=11, **arguments)
        self.cfg = PLAIN.replace(**changes)
        arrays = redrawn(self.cfg)
        self.theirs.load_state_dict({n: torch.from_numpy(a) for n, a in arrays.items()}, strict=True)
        self.images, self.arrays = random_images(self.cfg), arrays

    def of_timm(self, function, images=None):
        with torch.no_grad(), peer.float64():  # positions are resampled in float64 here
            return numbers(function(self.theirs, nchw(self.images if images is None else images)))

    def of_torch(self, function, images=None):
        with torch.no_grad():
            model = vit_torch.from_arrays(self.cfg, self.arrays)
            return numbers(function(model, nchw(self.images if images is None else images)))

    def of_jax(self, function, images=None):
        images = self.images if images is None else images
        return numbers(call_jax(self.cfg, self.arrays, function, images))


def numbers(value):
    """Nested results as arrays, flat; maps of PyTorch as JAX has them."""
    if isinstance(value, torch.Tensor):
        value = to_numpy(value)
        return [value.transpose(0, 2, 3, 1) if value.ndim == 4 else value]
    if isinstance(value, np.ndarray):
        return [value]
    return [array for each in value for array in numbers(each)]


def same(actual, expected):
    assert len(actual) == len(expected)
    assert all(error(a, b) <= EXACT for a, b in zip(actual, expected, strict=True))


REQUESTS = (
    {},
    {"indices": 2, "return_prefix_tokens": True},
    {"indices": [-1, 0], "norm": True, "output_fmt": "NLC"},
    {"indices": (1,), "stop_early": True, "return_prefix_tokens": True},
    {"indices": [0, 1], "intermediates_only": True, "stop_early": True},
)


@pytest.mark.parametrize("name", list(MODELS))
def test_features_head_and_intermediates(name):
    sides = Sides(name)

    def calls(model, x):
        features = model.forward_features(x)
        head = model.forward_head(features), model.forward_head(features, pre_logits=True)
        return features, head, [model.forward_intermediates(x, **options) for options in REQUESTS]

    expected = sides.of_timm(calls)
    same(sides.of_torch(calls), expected)
    same(sides.of_jax(calls), expected)
    same(sides.of_torch(lambda model, x: model(x).logits), expected[1:2])


def test_dinos_interface_and_another_image_size():
    sides = Sides("registers")
    images = random_images(sides.cfg.replace(image_size=(14, 35)))

    def calls(model, x):
        return (
            model.get_intermediate_layers(x, [0, 2], reshape=True, return_prefix_tokens=True),
            model.get_intermediate_layers(x, norm=True),
            model.forward_features(x),
        )

    for run in (sides.of_torch, sides.of_jax):
        same(run(calls, images), sides.of_timm(calls, images))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("class", (4, "avg")), ("registers", (4, None)), ("map", (4, "avg")), ("distilled", (4,)),
     ("mean", (0,)), ("class", (0,)), ("distilled", (0,))],
)  # fmt: skip
def test_another_head(name, arguments):
    sides = Sides(name)
    sides.theirs.reset_classifier(*arguments)
    ours = vit_torch.from_arrays(sides.cfg, sides.arrays)
    ours.reset_classifier(*arguments)
    assert not any(module.training for module in ours.modules())
    assert {n: p.shape for n, p in ours.named_parameters()} == {
        n: p.shape for n, p in sides.theirs.named_parameters()
    }
    assert all(p.dtype == torch.float64 for p in ours.parameters())
    sides.theirs.load_state_dict(ours.state_dict(), strict=True)
    x = nchw(sides.images)
    with torch.no_grad():
        expected = sides.theirs(x).numpy()
        assert error(ours(x).logits, expected) <= EXACT

    arrays = vit_torch.to_arrays(ours)

    def reset(model, x):
        model.reset_classifier(*arguments, rngs=nnx.Rngs(0))
        assert model.cfg == ours.cfg
        actual = vit_jax.leaves.leaves(model)
        assert {leaf.name: leaf.shape for leaf in actual} == {n: a.shape for n, a in arrays.items()}
        for leaf in actual:
            assert leaf.variable.get_value().dtype == jnp.float64
            leaf.variable.set_value(jnp.asarray(leaf.from_common(arrays[leaf.name])))
        return model(x).logits

    assert error(call_jax(sides.cfg, sides.arrays, reset, sides.images), expected) <= EXACT


def test_a_new_head_is_drawn_by_the_recipe_and_nothing_else_changes():
    arrays = redrawn(TINY)
    torch.manual_seed(0)
    model = vit_torch.from_arrays(TINY, arrays)
    model.reset_classifier(701)
    left = vit_torch.to_arrays(model)
    assert abs(left["head.weight"].std() / 0.02 - 1) < 0.05
    assert not left["head.bias"].any()
    assert all((left[n] == arrays[n]).all() for n in arrays if not n.startswith("head"))


BAD = {
    "no such block": (lambda m, x: m.forward_intermediates(x, [0, 3]), r"= \[0, 3\].* from -3 to 2"),
    "too many blocks": (lambda m, x: m.forward_intermediates(x, 4), "indices = 4.* expected 1 to 3"),
    "no blocks": (lambda m, x: m.get_intermediate_layers(x, []), r"indices = \[\].* at least one"),
    "half a block": (lambda m, x: m.forward_intermediates(x, [0.5]), r"= \[0.5\].* whole number"),
    "a letter": (lambda m, x: m.forward_intermediates(x, "a"), "whole number from -3 to 2"),
    "an empty batch": (lambda m, x: m(x[:0]), r"shape \(0, .* which is no image"),
    "nothing": (lambda m, x: m(None), r"images are a NoneType, expected an array \(B, "),
    "a format": (lambda m, x: m.forward_intermediates(x, output_fmt="NCL"), "= 'NCL'; expected"),
    "images for tokens": (lambda m, x: m.forward_head(x), r"shape .* expected \(B, P \+ N, 30\)"),
    "a pooling": (lambda m, x: reset(m, 3, "max"), "= 'max'; expected 'token', 'avg', 'map'"),
    "none": (lambda m, x: reset(m, 3, ""), "global_pool = ''; expected"),
    "no parameters for it": (lambda m, x: reset(m, 3, "map"), 'build one with pool = "map"'),
    "classes": (lambda m, x: reset(m, -1), "num_classes = -1"),
}  # fmt: skip


def reset(model, *arguments):
    rngs = {"rngs": nnx.Rngs(0)} if isinstance(model, vit_jax.ViT) else {}
    model.reset_classifier(*arguments, **rngs)


@pytest.mark.parametrize("case", list(BAD))
def test_what_makes_no_sense_is_refused(case):
    call, message = BAD[case]
    arrays = {name: array.astype(np.float32) for name, array in redrawn(TINY).items()}
    images = random_images(TINY).astype(np.float32)
    for model, x in (
        (vit_torch.from_arrays(TINY, arrays), nchw(images)),
        (vit_jax.from_arrays(TINY, arrays), jnp.asarray(images)),
    ):
        with pytest.raises((InputError, ConfigError), match=message):
            call(model, x)
        assert model.cfg == TINY


def test_random_numbers_that_are_none_are_refused():
    model = vit_jax.ViT(TINY, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match=r"rngs = 0: expected nnx.Rngs\(SEED\)"):
        model.reset_classifier(3, rngs=0)
    assert model.cfg == TINY


def test_dropped_patches_make_no_map():
    model = vit_torch.ViT(TINY.replace(dropout_patch=0.5)).train()
    images = nchw(random_images(TINY)).float()
    with pytest.raises(InputError, match='"NCHW" needs all patches, but dropout_patch left 4 of 9'):
        model.forward_intermediates(images)
    assert model.forward_intermediates(images, output_fmt="NLC")[1][0].shape == (2, 4, 30)


def test_the_layer_before_the_head_keeps_its_inputs():
    cfg = TINY.replace(head_hidden=17, pool="class_mean")
    with pytest.raises(InputError, match=r"gives 30 values, but the layer before the head .* takes 60"):
        vit_torch.ViT(cfg).reset_classifier(3, "token")
    model = vit_torch.ViT(TINY.replace(head_hidden=17)).eval()
    images = nchw(random_images(TINY)).float()
    seen = model.forward_head(model.forward_features(images), pre_logits=True)
    assert torch.equal(model.head(seen), model(images).logits)
    twin = vit_jax.from_arrays(model.cfg, vit_torch.to_arrays(model))
    tokens = jnp.asarray(model.forward_features(images).detach().numpy())
    assert error(twin.forward_head(tokens, pre_logits=True), seen.detach()) < 1e-6
