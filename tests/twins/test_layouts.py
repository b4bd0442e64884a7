"""What leaves a model as numpy arrays: whose memory it is, and in which order."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from vit_config import preset
from vit_jax.leaves import leaves
from vit_jax.weights import abstract_model
from vit_torch.weights import to_numpy


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
