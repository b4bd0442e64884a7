"""Each update rule of a recipe is that of torch.optim and of optax, in both twins, in float64."""

from typing import Any

import jax.numpy as jnp
import optax
import pytest
import torch

import vit_jax
import vit_torch
from parity.porting.reading.libraries.peers import import_timm
from tests.support.recipe_sides import (
    BASE,
    MATRICES,
    NOT_VECTORS,
    assert_equal,
    by_jax,
    by_optax,
    by_torch,
    by_torch_optim,
    gradients,
    mask,
    small,
    values,
)
from tests.support.refusals import one_line
from tests.support.tiny import error, variant
from vit_config import ConfigError
from vit_config.recipe import is_decayed
from vit_jax.optim import make_optimizer

PEAK, DECAY = BASE.learning_rate, BASE.weight_decay
EVERYTHING = set(values(small()))


def _coupled(make):
    return lambda rate: optax.chain(optax.add_decayed_weights(DECAY, mask(MATRICES)), make(rate))


RULES = {
    "adamw": (
        {"beta1": 0.8, "beta2": 0.95, "adam_eps": 1e-5},
        lambda groups: torch.optim.AdamW(groups, betas=(0.8, 0.95), eps=1e-5, weight_decay=DECAY),
        lambda rate: optax.adamw(rate, 0.8, 0.95, 1e-5, weight_decay=DECAY, mask=mask(MATRICES)),
    ),
    "adam": (
        {"optimizer": "adam"},
        lambda groups: torch.optim.Adam(groups, weight_decay=DECAY),
        _coupled(optax.adam),
    ),
    "sgd": (
        {"optimizer": "sgd", "momentum": 0.0},
        lambda groups: torch.optim.SGD(groups, weight_decay=DECAY),
        _coupled(optax.sgd),
    ),
    "momentum": (
        {"optimizer": "sgd", "momentum": 0.8},
        lambda groups: torch.optim.SGD(groups, momentum=0.8, weight_decay=DECAY),
        _coupled(lambda rate: optax.sgd(rate, 0.8)),
    ),
    "nesterov": (
        {"optimizer": "sgd", "momentum": 0.8, "nesterov": True},
        lambda groups: torch.optim.SGD(groups, momentum=0.8, nesterov=True, weight_decay=DECAY),
        _coupled(lambda rate: optax.sgd(rate, 0.8, nesterov=True)),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_an_update_is_torchs_and_optaxs(rule, x64):
    changes, in_torch, in_optax = RULES[rule]
    recipe = BASE.replace(**changes)
    ours, theirs = by_jax(recipe, gradients())[0], by_torch(recipe, gradients())[0]
    for peer in (by_torch_optim(recipe, in_torch, MATRICES), by_optax(recipe, in_optax)):
        assert_equal(ours, peer)
        assert_equal(theirs, peer)


def test_decay_that_follows_the_schedule_is_big_visions(x64):
    recipe = BASE.replace(decay_times="schedule")
    ours, theirs = by_jax(recipe, gradients())[0], by_torch(recipe, gradients())[0]

    def big_vision(rate):
        return optax.chain(
            optax.scale_by_adam(),
            optax.scale(PEAK),
            optax.add_decayed_weights(DECAY, mask(MATRICES)),
            optax.scale_by_schedule(lambda count: rate(count) / PEAK),
            optax.scale(-1.0),
        )

    def decay(model, rate):
        for name in MATRICES:
            model.get_parameter(name).data.mul_(1.0 - DECAY * rate / PEAK)

    for peer in (
        by_optax(recipe, big_vision),
        by_torch_optim(recipe, torch.optim.Adam, MATRICES, before=decay),
    ):
        assert_equal(ours, peer)
        assert_equal(theirs, peer)


@pytest.mark.parametrize(
    ("changes", "decayed"),
    [
        ({"decay": "matrices"}, MATRICES),
        ({"decay": "not_vectors"}, NOT_VECTORS),
        ({"decay": "all"}, EVERYTHING),
        ({"decay": "listed", "decayed": ("norm.weight",)}, {"norm.weight"}),
    ],
    ids=["matrices", "not_vectors", "all", "listed"],
)
def test_what_decays_is_what_the_rule_names(changes, decayed, x64):
    recipe = BASE.replace(**changes)
    ours, theirs = by_jax(recipe, gradients())[0], by_torch(recipe, gradients())[0]
    peer = by_torch_optim(recipe, lambda groups: torch.optim.AdamW(groups, weight_decay=DECAY), decayed)
    assert_equal(ours, peer)
    assert_equal(theirs, peer)


@pytest.mark.parametrize(
    "name",
    [
        "distilled",
        "layer_scale",
        "linear_hwc",
        "map",
        "per_head",
        "registers",
        "rel_pos_bias",
        "rope_mixed",
    ],
)
def test_the_twins_decay_the_same(name):
    """Layouts differ, the number of axes does not."""
    cfg = variant(name)
    ours = {
        leaf.name: len(leaf.shape) for leaf in vit_jax.leaves.leaves(vit_jax.weights.abstract_model(cfg))
    }
    with torch.device("meta"):
        model = vit_torch.ViT(cfg)
    theirs = {leaf.name: leaf.variable.ndim for leaf in vit_torch.leaves.leaves(model)}
    assert ours == theirs


def test_a_listed_name_that_no_parameter_has_is_refused(x64):
    recipe = BASE.replace(decay="listed", decayed=("norm.weights",))
    for run in (by_jax, by_torch):
        with pytest.raises(ConfigError) as caught:
            run(recipe, [])
        one_line(caught.value, "'norm.weights'", "7 parameters", "did you mean 'norm.weight'?")


def test_a_layer_scale_is_decayed_by_hugging_faces_trainer_alone():
    import_timm()  # torchvision, which the trainer imports, does not load everywhere without it
    from transformers import Trainer

    from tests.support.hf_models import MLP, SQUARE, build

    model = build(
        "BeitForImageClassification", "BeitConfig", **SQUARE, **MLP, layer_scale_init_value=0.1
    )
    scales = [name for name in Trainer.get_decay_parameter_names(None, model) if "lambda_" in name]
    assert len(scales) == 2 * SQUARE["num_hidden_layers"]
    assert not any(is_decayed(BASE.replace(decay="not_vectors"), name, 1) for name in scales)


@pytest.mark.parametrize("count", [1, 10])
def test_in_float32_adam_is_torchs_and_optaxs_is_not(count):
    """The bias correction of the second moment: in float32, optax's loses five digits of it."""
    recipe = BASE.replace(weight_decay=0.0, dtype="float32", schedule="constant", warmup_epochs=0.0,
                          final_learning_rate=0.0, learning_rate=1.0)  # fmt: skip
    grad, parameter = {"a.weight": jnp.full(4, 0.37)}, torch.nn.Parameter(torch.zeros(4))
    ours, optaxs = make_optimizer(recipe, 1), optax.adam(1.0)
    states: list[Any] = [ours.init(grad), optaxs.init(grad)]
    result: list[Any] = [grad, grad]
    before, optimizer = parameter.detach(), torch.optim.Adam([parameter], lr=1.0)
    for _ in range(count):
        result[0], states[0] = ours.update(grad, states[0], grad)
        result[1], states[1] = optaxs.update(grad, states[1])
        before, parameter.grad = parameter.detach().clone(), torch.full((4,), 0.37)
        optimizer.step()
    distances = [error(update["a.weight"], parameter.detach() - before) for update in result]
    assert distances[0] < 5e-7
    assert 1e-6 < distances[1] < 1.5e-5


@pytest.mark.parametrize(
    ("entries", "beside"),
    [({"reg_tokens": 2}, set()), ({"global_pool": "map", "class_token": False}, {"attn_pool.latent"})],
    ids=["class", "map"],
)
def test_matrices_are_what_timm_decays_of_its_vit(entries, beside):
    """But for the query of attention pooling, which timm takes for a matrix."""
    timm = import_timm()
    from timm.optim import param_groups_weight_decay

    sizes = {"img_size": (21, 10), "patch_size": (7, 5), "embed_dim": 30, "num_heads": 5, "depth": 2}
    model = timm.models.VisionTransformer(init_values=0.1, qk_norm=True, **sizes, **entries)
    *_, group = param_groups_weight_decay(model, 0.1, no_weight_decay_list=model.no_weight_decay())
    assert group["weight_decay"] == 0.1
    decayed = {id(parameter) for parameter in group["params"]}
    named = dict(model.named_parameters())
    theirs = {name for name, parameter in named.items() if id(parameter) in decayed}
    ours = {name for name, parameter in named.items() if is_decayed(BASE, name, parameter.ndim)}
    assert theirs == ours | beside
    assert not ours & beside


@pytest.mark.parametrize(
    ("kind", "entries"),
    [("ViT", {}), ("Beit", {"use_relative_position_bias": True, "layer_scale_init_value": 0.0})],
)
def test_not_vectors_is_what_hugging_faces_trainer_decays(kind, entries):
    from transformers import Trainer

    from tests.support.hf_models import MLP, SQUARE, build

    model = build(f"{kind}ForImageClassification", f"{kind}Config", **SQUARE, **MLP, **entries)
    names = set(Trainer.get_decay_parameter_names(None, model))
    recipe = BASE.replace(decay="not_vectors")
    assert names == {
        name for name, parameter in model.named_parameters() if is_decayed(recipe, name, parameter.ndim)
    }
