"""Three steps of both trainers from the same weights: the values they end with."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import torch

import vit_jax.optim
import vit_jax.step
import vit_torch.optim
import vit_torch.step
from parity.measure.redraw import redraw
from tests.support.tiny import TINY
from vit_config import Recipe
from vit_jax.functional import get_params, make_merge
from vit_torch.leaves import leaves
from vit_torch.weights import abstract_model

CFG = TINY.replace(depth=1)
STEPS_PER_EPOCH = 2
RECIPE = Recipe(
    epochs=4,
    warmup_epochs=1.0,
    learning_rate=3e-3,
    final_learning_rate=1e-5,
    weight_decay=0.05,
    clip_norm=1.0,
    label_smoothing=0.1,
    dtype="float64",
)


def weights() -> dict[str, np.ndarray]:
    """The values that both start from."""
    parts = leaves(abstract_model(CFG))
    return {leaf.name: redraw(leaf.name, leaf.kind, leaf.shape, 0) for leaf in parts}


def batches(dtype: str, count: int = 3) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images (B, H, W, C) and labels."""
    stream = np.random.default_rng(1)
    for _ in range(count):
        images = stream.standard_normal((4, *CFG.image_size, CFG.in_channels))
        yield images.astype(dtype), stream.integers(0, CFG.num_classes, 4)


def train_torch(recipe: Recipe) -> dict[str, np.ndarray]:
    """Train the PyTorch twin, and return the parameters it ends with."""
    dtype = recipe.dtype
    model = vit_torch.from_arrays(CFG, {name: x.astype(dtype) for name, x in weights().items()})
    optimizer = vit_torch.optim.make_optimizer(model, recipe)
    step = vit_torch.step.make_train_step(model, recipe, optimizer, STEPS_PER_EPOCH)
    for number, (images, labels) in enumerate(batches(dtype)):
        image, label = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)
        step(number, {"image": image, "label": label})
    return vit_torch.to_arrays(model)


def train_jax(recipe: Recipe) -> dict[str, np.ndarray]:
    """The same with the JAX twin."""
    dtype = recipe.dtype
    with jax.enable_x64(dtype == "float64"), jax.default_matmul_precision("highest"):
        model = vit_jax.from_arrays(CFG, {name: x.astype(dtype) for name, x in weights().items()})
        state = vit_jax.step.init_state(CFG, recipe, STEPS_PER_EPOCH)
        state = state._replace(params=get_params(model))
        step = jax.jit(vit_jax.step.make_train_step(CFG, recipe, STEPS_PER_EPOCH))
        for images, labels in batches(dtype):
            state, _ = step(state, {"image": jnp.asarray(images), "label": jnp.asarray(labels)})
        return vit_jax.to_arrays(make_merge(CFG)(state.params))
