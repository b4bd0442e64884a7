"""Conversion is a walk over both trees: bit for bit, both ways, strict and complete in its errors."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from flax import nnx

import vit_jax
import vit_torch
from parity.twins.pairing import pair, to_jax, to_torch
from tests.support.tiny import TINY, VARIANTS, variant
from vit_config import WeightsError
from vit_jax.functional import get_params

pytestmark = pytest.mark.versions


def _bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("name", VARIANTS)
def test_round_trip_from_torch_is_bit_exact(name):
    source = vit_torch.ViT(variant(name))
    back = to_torch(to_jax(source))
    assert source.state_dict().keys() == back.state_dict().keys()
    for key, value in source.state_dict().items():
        assert torch.equal(value, back.state_dict()[key])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_round_trip_from_jax_is_bit_exact_in_every_type(dtype, x64):
    model = vit_jax.ViT(TINY, rngs=nnx.Rngs(0))
    arrays = {name: array.astype(dtype) for name, array in vit_jax.to_arrays(model).items()}
    source = vit_jax.from_arrays(TINY, arrays)
    back = vit_jax.to_arrays(to_jax(to_torch(source)))
    for name, array in arrays.items():
        assert back[name].dtype == dtype
        np.testing.assert_array_equal(_bits(back[name]), _bits(array))


def test_layouts_are_each_frameworks_own():
    torch_model = vit_torch.ViT(TINY)
    jax_model = to_jax(torch_model)
    block, twin = jax_model.blocks[1], torch_model.get_parameter
    fc1, gain = (twin(f"blocks.1.{name}.weight").detach() for name in ("mlp.fc1", "norm1"))
    np.testing.assert_array_equal(block.mlp.fc1.kernel[...], fc1.T)
    np.testing.assert_array_equal(
        jax_model.patch_embed.proj.kernel[...],
        torch_model.patch_embed.proj.weight.detach().permute(2, 3, 1, 0),  # OIHW to HWIO
    )
    np.testing.assert_array_equal(block.norm1.scale[...], gain)
    np.testing.assert_array_equal(jax_model.cls_token[...], torch_model.cls_token.detach())


def test_the_same_pairs_carry_gradients_and_moments():
    torch_model = vit_torch.ViT(TINY)
    jax_model = to_jax(torch_model)
    pairs = pair(jax_model, torch_model)
    values = {name: value * 3 for name, value in get_params(jax_model).items()}  # any such tree
    tensors = {each.name: each.to_torch(values[each.name]) for each in pairs}
    for name, parameter in torch_model.named_parameters():
        assert tensors[name].shape == parameter.shape
    for each in pairs:
        np.testing.assert_array_equal(each.to_jax(tensors[each.name]), values[each.name])


def test_converted_arrays_share_no_memory():
    torch_model = vit_torch.ViT(TINY)
    jax_model = to_jax(torch_model)
    before = vit_jax.to_arrays(jax_model)
    copies = {name: array.copy() for name, array in before.items()}
    with torch.no_grad():
        for parameter in torch_model.parameters():
            parameter.fill_(7.0)
    for name, array in vit_jax.to_arrays(jax_model).items():
        np.testing.assert_array_equal(array, copies[name])


def test_every_mismatch_is_reported_at_once():
    jax_model = vit_jax.ViT(TINY, rngs=nnx.Rngs(0))
    other = TINY.replace(mlp_dim=52, layer_scale=0.1, class_token=False, pool="mean")
    torch_model = vit_torch.ViT(other).double()
    with pytest.raises(WeightsError) as caught:
        pair(jax_model, torch_model)
    message = str(caught.value)
    assert "cls_token: only in the JAX model, (1, 1, 30)" in message
    assert "blocks.2.ls2.gamma: only in the torch model, (30,)" in message
    assert "blocks.1.mlp.fc1.weight: shape (44, 30) in the JAX model, (52, 30) in the torch" in message
    assert "norm.weight: type float32 in the JAX model, float64 in the torch model" in message
    assert "pos_embed: shape (1, 10, 30) in the JAX model, (1, 9, 30) in the torch model" in message


def test_loading_is_strict_and_leaves_the_source_alone():
    arrays = vit_jax.to_arrays(vit_jax.ViT(TINY, rngs=nnx.Rngs(0)))
    arrays["head.weight"] = arrays["head.weight"][:, :-1]
    arrays["stranger"] = np.zeros(3, np.float32)
    arrays["norm.bias"] = arrays["norm.bias"].astype(np.float16)
    del arrays["cls_token"]
    for twin in (vit_jax, vit_torch):
        with pytest.raises(WeightsError) as caught:
            twin.from_arrays(TINY, arrays)
        for part in (
            "4 mismatches",
            "cls_token: missing, the model has (1, 1, 30)",
            "stranger: unexpected, of shape (3,)",
            "head.weight: shape (11, 29) in the weights, (11, 30) in the model",
            "norm.bias: type float16, the others are float32",
        ):
            assert part in str(caught.value)


def test_a_layer_without_a_rule_is_refused():
    class Foreign(nnx.Module):
        def __init__(self):
            self.table = nnx.Embed(3, 4, rngs=nnx.Rngs(0))

    with pytest.raises(TypeError, match="no layout rule for embedding of Embed"):
        vit_jax.leaves.leaves(Foreign())


def test_float64_is_never_cut_silently():
    arrays = {
        name: array.astype(np.float64)
        for name, array in vit_jax.to_arrays(vit_jax.ViT(TINY, rngs=nnx.Rngs(0))).items()
    }
    with pytest.raises(WeightsError, match="jax_enable_x64"):
        vit_jax.from_arrays(TINY, arrays)
    assert jnp.zeros(1).dtype == jnp.float32
