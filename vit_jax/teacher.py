"""A trained model as a teacher: the logits of a weights file."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from vit_config import Weights
from vit_jax.compiling import compiler_options
from vit_jax.functional import get_params, make_apply
from vit_jax.weights import from_arrays


def make_teacher(weights: Weights) -> Callable[[np.ndarray], np.ndarray]:
    """Make the function from normalised images (B, H, W, C) to logits (B, classes), in the type of
    the parameters; nothing is dropped."""
    params = get_params(from_arrays(weights.config, weights.arrays))
    dtype = next(iter(params.values())).dtype
    options = compiler_options(jax.default_backend())
    apply = partial(make_apply(weights.config), return_tokens=False)
    compiled = jax.jit(apply, compiler_options=options)

    def teach(images: np.ndarray) -> np.ndarray:
        return np.asarray(compiled(params, jnp.asarray(images, dtype)).logits)

    return teach
