"""What leaves a model as numpy arrays: whose memory it is, and in which order."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.support.tiny import TINY
from vit_config import preset
from vit_jax.functional import get_params, make_merge
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model
from vit_torch.weights import from_numpy, to_numpy


def test_parameters_of_jax_leave_in_c_order_and_memory_of_their_own():
    for leaf in leaves(abstract_model(preset("digits"))):
        shape = leaf.variable.get_value().shape
        value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        common = leaf.to_common(jnp.asarray(value))
        assert common.flags.c_contiguous
        assert common.flags.writeable
        assert common.shape == leaf.shape
        np.testing.assert_array_equal(leaf.from_common(common), value)
        common += 1
        assert not np.shares_memory(common, leaf.to_common(value))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_leaves_as_a_copy_unless_asked_otherwise(dtype):
    tensor = torch.arange(6.0, dtype=dtype).reshape(2, 3)
    copied, own = to_numpy(tensor), to_numpy(tensor, copy=False)
    tensor += 1
    np.testing.assert_array_equal(copied.astype(np.float32), np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(own.astype(np.float32), np.arange(6.0).reshape(2, 3) + 1)


def test_an_array_of_any_order_enters_pytorch_as_a_copy_in_c_order():
    array = np.arange(6.0).reshape(2, 3).T
    tensor = from_numpy(array)
    assert tensor.is_contiguous()
    tensor += 1
    np.testing.assert_array_equal(tensor.numpy(), np.arange(6.0).reshape(2, 3).T + 1)
    np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3).T)


def test_parameters_are_put_into_the_model_that_is_there_or_a_new_one():
    there = abstract_model(TINY, kernel="xla")
    params = get_params(there)
    for abstract, kernel in ((there, "xla"), (None, "auto")):
        model = make_merge(TINY, abstract)(params)
        assert get_params(model) == params
        assert model.blocks[0].attn.kernel == kernel
