"""Deliberate faults: each changes what its own twin computes, in its own block, and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax
import vit_torch
from evidence.faults import FAULTS
from parity.faults import inject, parse
from parity.faults.twin import TWINS, operations_of
from parity.measure.redraw import random_batch, redraw
from tests.support.fault_subjects import BASE, subject
from tests.support.tiny import TINY, error
from vit_config import ConfigError, ViTConfig
from vit_jax.functional import get_params, make_apply
from vit_jax.leaves import leaves as jax_leaves
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

ROOT = Path(__file__).parents[3]
QUICK = {"tanh_gelu", "swapped_q_and_k", "missing_final_norm", "detached_positions", "swapped_gate"}
# some of them: evidence/mutation_score has each found in either twin
SOME = [
    *sorted(QUICK),
    *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.exhaustive]) for n in [*FAULTS][::6]),
]
SCOPED = [name for name, fault in FAULTS.items() if fault.in_block]


def test_there_is_a_fault_for_every_mistake():
    assert len(FAULTS) >= 60
    assert len(SCOPED) >= 30
    assert sum(fault.cause is None and not fault.unseen for fault in FAULTS.values()) >= 5
    for name, fault in FAULTS.items():
        assert fault.name == name
        for cause in (fault.cause or "none").split(" or "):
            assert re.fullmatch(r"[A-Za-z0-9]+(-[a-z0-9]+)*", cause), name
        assert all(hasattr(ViTConfig, field) or field in ViTConfig.fields() for field in fault.needs), (
            name
        )
        assert fault.in_block or "{i}" not in fault.where, name


def test_five_of_models_and_three_of_steps_are_shipped():
    assert [n for n, each in FAULTS.items() if each.apply.__module__.startswith("parity.")] == [
        "tanh_gelu", "tanh_gelu_in_float32", "fast_variance", "dropped_residual", "detached_positions"
    ]  # fmt: skip
    code = "from parity.faults.steps import STEP_FAULTS; print(*STEP_FAULTS)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.stdout.split() == ["loss_sum", "schedule_one_ahead", "beta2"]


def _setting(name):
    """The schema, the images and the type in which a fault shows."""
    cfg = subject(name)
    larger = cfg.replace(image_size=(28, 20)) if name == "other_resampling" else cfg
    dtype = "float32" if name == "tanh_gelu_in_float32" else "float64"
    return cfg, random_batch(larger, 2, 0).images.astype(dtype)


def _values(cfg, dtype, offset):
    parts = leaves(abstract_model(cfg))
    values = {leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0) for leaf in parts}
    if offset:
        values["pos_embed"] = values["pos_embed"] + offset
    return {name: value.astype(dtype) for name, value in values.items()}


def _run_torch(cfg, images, gradients=False, offset=0.0):
    """The logits, every block's output, and the gradient of the sum of squares of the logits."""
    model = vit_torch.from_arrays(cfg, _values(cfg, images.dtype, offset)).requires_grad_(gradients)
    output = model(torch.from_numpy(images).permute(0, 3, 1, 2), return_blocks=True)
    if not gradients:
        return [output.logits.numpy(), *(block.numpy() for block in output.blocks)], {}
    (output.logits**2).sum().backward()
    grads = {
        name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()
    }
    return [output.logits.detach().numpy()], {name: grad.numpy() for name, grad in grads.items()}


def _run_jax(cfg, images, gradients=False, offset=0.0):
    model = vit_jax.from_arrays(cfg, _values(cfg, images.dtype, offset))
    if not gradients:
        output = nnx.jit(lambda model, x: model(x, return_blocks=True))(model, jnp.asarray(images))
        return [np.asarray(output.logits), *map(np.asarray, output.blocks)], {}
    apply = make_apply(cfg)
    names = {leaf.name: leaf for leaf in jax_leaves(model)}

    def total(params):
        logits = apply(params, jnp.asarray(images)).logits
        return (logits**2).sum(), logits

    (_, logits), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(get_params(model))
    return [np.asarray(logits)], {name: names[name].to_common(grad) for name, grad in grads.items()}


RUN = {"torch": _run_torch, "jax": _run_jax}


@pytest.mark.parametrize("name", SOME)
def test_a_fault_is_the_same_in_either_twin_and_in_no_other(name, x64):
    fault = FAULTS[name]
    cfg, images = _setting(name)
    backward = fault.stage == "backward"
    offset = 1000.0 if name == "fast_variance" else 0.0
    clean = {each: RUN[each](cfg, images, backward, offset) for each in TWINS}
    wrong = {}
    for each in TWINS:
        before = _methods(each, cfg)
        with inject(f"{name}@{each}", cfg):
            assert _methods(each, cfg) != before
            results = {every: RUN[every](cfg, images, backward, offset) for every in TWINS}
        assert _methods(each, cfg) == before
        other = next(every for every in TWINS if every != each)
        assert _difference(results[other], clean[other]) == 0.0
        wrong[each] = results[each]
        assert (_difference(wrong[each], clean[each]) > 1e-11) is (fault.unseen is None)
    coarse = {"float32_activation": 1e-6, "tanh_gelu_in_float32": 1e-5, "fast_variance": 1e-8}
    assert _difference(wrong["torch"], wrong["jax"]) < coarse.get(name, 1e-11)


def _difference(a, b):
    """Of the logits and the gradients; infinite for other shapes."""
    pairs = [(a[0][0], b[0][0]), *((a[1][name], b[1][name]) for name in a[1])]
    return max(
        np.inf if x.shape != y.shape else float(np.abs(x - y).max() / (np.abs(y).max() or 1.0))
        for x, y in pairs
    )


def _methods(name, cfg):
    """What every class of a twin's models defines by itself."""
    own = operations_of(name)
    kinds = {kind for _, module in own.modules(own.abstract_model(cfg)) for kind in type(module).__mro__}
    return {kind: dict(vars(kind)) for kind in kinds if kind is not object}


@pytest.mark.parametrize(
    "name", [n for n in SCOPED[::4] if FAULTS[n].stage == "forward" and not FAULTS[n].unseen]
)
def test_a_fault_in_one_block_leaves_those_before_it_alone(name):
    cfg, images = _setting(name)
    offset = 1000.0 if name == "fast_variance" else 0.0
    clean, _ = _run_torch(cfg, images, offset=offset)
    with inject(f"{name}@torch:1", cfg):
        wrong, _ = _run_torch(cfg, images, offset=offset)
    assert np.array_equal(wrong[1], clean[1])
    assert not np.array_equal(wrong[2], clean[2])


def test_a_fault_in_one_block_of_a_traced_model(x64):
    images = random_batch(BASE, 2, 0).images
    arrays = _values(BASE, "float64", 0.0)
    apply = make_apply(BASE)
    params = get_params(vit_jax.from_arrays(BASE, arrays))
    clean = apply(params, images, return_blocks=True).blocks
    with inject("missing_norm@jax:1", BASE):
        wrong = jax.jit(lambda p, x: apply(p, x, return_blocks=True).blocks)(params, images)
    assert error(wrong[0], clean[0]) < 1e-14
    assert error(wrong[1], clean[1]) > 1e-3


def test_a_fault_that_raises_is_taken_out():
    before = _methods("torch", TINY)
    with pytest.raises(RuntimeError, match="on purpose"), inject("tanh_gelu", TINY):
        raise RuntimeError("on purpose")
    assert _methods("torch", TINY) == before


def test_no_fault_is_nothing():
    before = _methods("torch", TINY)
    with inject(None, TINY):
        assert _methods("torch", TINY) == before


@pytest.mark.parametrize(
    ("text", "twin_name", "block"),
    [
        ("tanh_gelu", "torch", None),
        ("fast_variance", "jax", None),
        ("tanh_gelu@jax", "jax", None),
        ("tanh_gelu:0", "torch", 0),
        ("tanh_gelu@jax:2", "jax", 2),
    ],
)
def test_what_names_a_fault(text, twin_name, block):
    injection = parse(text)
    assert (injection.twin, injection.block) == (twin_name, block)
    assert (
        injection.fault.located(block)
        == f"blocks.{block or 0}.{'norm1' if 'fast' in text else 'mlp.act'}"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tanh_gelo", "did you mean 'tanh_gelu'?"),
        ("cosmic_rays", "the faults are"),
        ("tanh_gelu@flax", "the twins are jax, torch"),
        ("tanh_gelu@", "unknown twin ''"),
        ("tanh_gelu:first", "expected the number of a block after the colon, found 'first'"),
        ("tanh_gelu:-1", "expected the number of a block"),
        ("tanh_gelu:3", "cannot be in block 3 where depth = 3"),
        ("wrong_pool:1", "'wrong_pool' is not in a block; leave :1 out"),
        ("swapped_gate", "nothing to break where mlp = 'mlp'"),
        ("missing_layer_scale", "nothing to break where layer_scale = None"),
    ],
)
def test_what_cannot_be_injected(text, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        inject(text, TINY)
    assert "\n" not in str(caught.value)


def test_a_model_without_the_module():
    with pytest.raises(ConfigError, match=re.escape("a model without blocks.{i}.norm1")):
        inject("norm_epsilon", TINY.replace(block="parallel"))
