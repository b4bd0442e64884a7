"""The sides of the twins, built as in a training run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch

import vit_jax.optim
import vit_jax.step
import vit_torch.optim
import vit_torch.step
from evidence.originals.side import Arrays, Case
from parity.runs.state_jax import JaxLayout
from vit_config import Recipe
from vit_torch.weights import from_arrays, to_arrays
from vit_train.augmentation.mixing import mix_batch


def mixed_batch(
    case: Case, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mix a batch as a training run does."""
    if not case.recipe.mix.mixes:
        return images, labels
    return mix_batch(images, labels, case.recipe.mix, case.config.num_classes, rng)


class JaxSide:
    """The JAX twin; needs a JAX that is not limited to 32 bits."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, JaxLayout(case.config)
        recipe, per_epoch = case.recipe, case.steps_per_epoch
        params = self._layout.from_common(case.start)
        self._state = vit_jax.step.TrainState(
            jnp.zeros((), jnp.int32),
            params,
            vit_jax.optim.make_optimizer(recipe, per_epoch).init(params),
            vit_jax.optim.init_ema(recipe, params),
        )
        self._step = jax.jit(vit_jax.step.make_train_step(case.config, recipe, per_epoch))

    def step(self, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> float:
        """See `Side`."""
        images, labels = mixed_batch(self._case, images, labels, rng)
        batch = {"image": jnp.asarray(images), "label": jnp.asarray(labels)}
        self._state, metrics = self._step(self._state, batch)
        return float(metrics["loss"])

    def params(self) -> Arrays:
        """See `Side`."""
        return self._layout.to_common(jax.device_get(self._state.params))


class TorchSide:
    """The PyTorch twin."""

    def __init__(self, case: Case) -> None:
        recipe: Recipe = case.recipe
        self._case, self._done = case, 0
        self._model = from_arrays(case.config, case.start)
        optimizer = vit_torch.optim.make_optimizer(self._model, recipe)
        ema = vit_torch.optim.init_ema(recipe, self._model)
        self._step = vit_torch.step.make_train_step(
            self._model, recipe, optimizer, case.steps_per_epoch, ema
        )

    def step(self, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> float:
        """See `Side`."""
        images, labels = mixed_batch(self._case, images, labels, rng)
        placed = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))  # (B, C, H, W)
        metrics = self._step(self._done, {"image": placed, "label": torch.from_numpy(labels)})
        self._done += 1
        return float(metrics["loss"])

    def params(self) -> Arrays:
        """See `Side`."""
        return {name: value.copy() for name, value in to_arrays(self._model).items()}
