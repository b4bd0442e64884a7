"""Layer-wise learning rates are those of timm and of MAE, LAMB is timm's, in both twins, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import vit_jax.optim
import vit_jax.step
import vit_torch
import vit_torch.step
from parity.porting.reading.libraries.peers import import_timm
from tests.support.recipe_sides import (
    BASE,
    MATRICES,
    assert_equal,
    by_jax,
    by_torch,
    differ,
    gradients,
    rates,
    set_gradients,
    small,
    values,
)
from tests.support.tiny import TINY, variant
from vit_config import Recipe
from vit_config.layer_decay import layer_scales
from vit_jax.functional import get_params
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model, from_arrays

SIZES = {
    "img_size": (21, 15),
    "patch_size": (7, 5),
    "embed_dim": 30,
    "depth": 3,
    "num_heads": 5,
    "num_classes": 11,
}
MODELS = {
    "vit": ("vit_tiny_patch16_224", {}),
    "mean": ("vit_tiny_patch16_224", {"global_pool": "avg"}),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 2, "pre_norm": True}),
    "map": ("vit_tiny_patch16_224", {"global_pool": "map", "class_token": False}),
    "deit": ("deit_tiny_distilled_patch16_224", {}),
    "beit": ("beit_base_patch16_224", {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_timms(name):
    timm = import_timm()
    from timm.optim import param_groups_layer_decay

    kind, options = MODELS[name]
    model = timm.create_model(kind, **SIZES, **options)
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    expected = {
        named[id(parameter)]: group["lr_scale"]
        for group in param_groups_layer_decay(model, layer_decay=0.65)
        for parameter in group["params"]
    }
    assert layer_scales(Recipe(layer_decay=0.65), expected) == expected


@pytest.mark.parametrize("name", ["registers", "mean_post_norm", "distilled", "layer_scale"])
def test_layers_are_maes(name):
    """`get_layer_id_for_vit` and `param_groups_lrd` of facebookresearch/mae, util/lr_decay.py."""

    def layer_id(name, num_layers):
        if name in ["cls_token", "pos_embed"]:
            return 0
        if name.startswith("patch_embed"):
            return 0
        if name.startswith("blocks"):
            return int(name.split(".")[1]) + 1
        return num_layers

    names = [leaf.name for leaf in leaves(abstract_model(variant(name)))]
    scales = [0.65 ** (4 - layer) for layer in range(5)]
    expected = {name: scales[layer_id(name, 4)] for name in names}
    assert layer_scales(Recipe(layer_decay=0.65, layer_rule="mae"), names) == expected


def _drawn(model):
    stream = np.random.default_rng(1)
    return [
        {name: stream.standard_normal(value.shape) for name, value in model.named_parameters()}
        for _ in range(5)
    ]


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "lamb"])
def test_updates_are_those_of_timms_groups(optimizer, x64):
    timm = import_timm()
    from timm.optim import create_optimizer_v2

    recipe = BASE.replace(optimizer=optimizer, layer_decay=0.65)
    torch.manual_seed(0)
    ours = vit_torch.ViT(TINY).double()
    start = vit_torch.to_arrays(ours)
    peer = timm.create_model("vit_tiny_patch16_224", **SIZES, mlp_ratio=44 / 30).double()
    peer.load_state_dict(ours.state_dict())
    drawn = _drawn(ours)

    update = vit_torch.step.make_update(
        ours, recipe, vit_torch.optim.make_optimizer(ours, recipe), steps_per_epoch=4
    )
    options = {"max_grad_norm": None, "eps": 1e-8} if optimizer == "lamb" else {}
    kind = "momentum" if optimizer == "sgd" else optimizer
    theirs = create_optimizer_v2(
        peer, opt=kind, weight_decay=recipe.weight_decay, layer_decay=0.65, **options
    )
    for step, grad in enumerate(drawn):
        set_gradients(ours, grad)
        update(step)
        set_gradients(peer, grad)
        for group in theirs.param_groups:
            group["lr"] = float(rates(recipe)[step]) * group["lr_scale"]
        theirs.step()
    expected = {name: value.detach().numpy() for name, value in peer.named_parameters()}
    assert_equal(vit_torch.to_arrays(ours), expected)

    model = from_arrays(TINY, start)
    layout = {leaf.name: leaf for leaf in leaves(model)}
    params = get_params(model)
    state = vit_jax.step.TrainState(
        jnp.int32(0), params, vit_jax.optim.make_optimizer(recipe, 4).init(params)
    )
    step = jax.jit(vit_jax.step.make_update(recipe, 4))
    for grad in drawn:
        state = step(state, {n: jnp.asarray(layout[n].from_common(g)) for n, g in grad.items()})
    assert_equal({n: layout[n].to_common(value) for n, value in state.params.items()}, expected)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_lamb_is_timms(clip, x64):
    """The fourth gradient is zero, and its update is one of the moments alone."""
    import_timm()
    from timm.optim import Lamb

    recipe = BASE.replace(optimizer="lamb", adam_eps=1e-6, beta2=0.95, clip_norm=clip)
    model = small()
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for n, p in named.items() if n in MATRICES], "weight_decay": BASE.weight_decay},
        {"params": [p for n, p in named.items() if n not in MATRICES], "weight_decay": 0.0},
    ]
    peer = Lamb(groups, betas=(0.9, 0.95), eps=1e-6, max_grad_norm=clip)
    for rate, grad in zip(rates(recipe), gradients(), strict=True):
        set_gradients(model, grad)
        for group in peer.param_groups:
            group["lr"] = float(rate)
        peer.step()
    for actual in (by_jax(recipe, gradients())[0], by_torch(recipe, gradients())[0]):
        assert_equal(actual, values(model))
    assert differ(values(model), by_torch(BASE.replace(adam_eps=1e-6, beta2=0.95), gradients())[0])


def test_a_parameter_of_zeros_is_not_stuck(x64):
    """A trust ratio of zero over something would keep it at zero for ever."""
    recipe = BASE.replace(optimizer="lamb", warmup_epochs=0.0)
    name = "head.weight"
    model = small()
    model.get_parameter(name).data.zero_()
    update = vit_torch.step.make_update(model, recipe, vit_torch.optim.make_optimizer(model, recipe), 4)  # pyright: ignore
    params = {name: jnp.asarray(value) for name, value in values(model).items()}
    set_gradients(model, gradients()[0])
    update(0)
    state = vit_jax.step.TrainState(
        jnp.int32(0), params, vit_jax.optim.make_optimizer(recipe, 4).init(params)
    )
    drawn = {n: jnp.asarray(g) for n, g in gradients()[0].items()}
    state = vit_jax.step.make_update(recipe, 4)(state, drawn)
    assert np.abs(values(model)[name]).min() > 0
    assert_equal(jax.device_get(state.params), values(model))
