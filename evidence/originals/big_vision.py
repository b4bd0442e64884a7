"""Big Vision's training: its chain of optax transformations and its step, as in its source.

``optax.py`` (``make``), ``utils.py`` (``create_learning_rate_schedule``, ``get_mixup``,
``softmax_xent``) and ``train.py`` (``update_fn``) of github.com/google-research/big_vision
(2025-05-19) on optax itself; the model is the JAX twin. Unlike there, moments are float64 and not
bfloat16, the learning rate is float64 and not cast to float32, and there is one device.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from evidence.originals.side import Arrays, Case
from parity.runs.state_jax import JaxLayout
from vit_config import Recipe
from vit_jax.functional import Params, make_apply


class BigVision:
    """A training run by Big Vision's code."""

    def __init__(self, case: Case) -> None:
        self._layout, self._classes = JaxLayout(case.config), case.config.num_classes
        self._alpha = case.recipe.mix.mixup
        self._params: Any = self._layout.from_common(case.start)
        self._optimizer = _chain(case, self._params)
        self._state = self._optimizer.init(self._params)
        apply = make_apply(case.config)

        def loss_fn(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
            log_p = jax.nn.log_softmax(apply(params, images).logits, axis=-1)
            return jnp.mean(-jnp.sum(labels * log_p, axis=-1))

        def update(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
            loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
            updates, state = self._optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        self._update = jax.jit(update)

    def step(self, images: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> float:
        """See `Side`."""
        things = jnp.asarray(images), jax.nn.one_hot(labels, self._classes)
        if self._alpha:
            a = rng.beta(self._alpha, self._alpha)
            a = jnp.maximum(a, 1.0 - a)
            things = tuple(a * x + (1 - a) * jnp.roll(x, shift=1, axis=0) for x in things)
        self._params, self._state, loss = self._update(self._params, self._state, *things)
        return float(loss)

    def params(self) -> Arrays:
        """See `Side`."""
        return self._layout.to_common(jax.device_get(self._params))


def _chain(case: Case, params: Params) -> optax.GradientTransformation:
    recipe = case.recipe
    kernels = {
        name: value.ndim >= 2 and name.endswith(".weight") for name, value in params.items()
    }  # ".*/kernel$": norms' scales are vectors, tables and tokens have names of their own
    adam = optax.scale_by_adam(b1=recipe.beta1, b2=recipe.beta2, eps=recipe.adam_eps)
    momentum = optax.trace(decay=recipe.momentum, nesterov=False)
    decay = [optax.add_decayed_weights(recipe.weight_decay, kernels)] if recipe.weight_decay else []
    return optax.chain(
        optax.clip_by_global_norm(recipe.clip_norm or math.inf),
        momentum if recipe.optimizer == "sgd" else adam,
        optax.scale(recipe.learning_rate),
        *decay,
        optax.scale_by_schedule(_schedule(recipe, case.steps_per_epoch)),
        optax.scale(-1.0),
    )


def _schedule(recipe: Recipe, per_epoch: int) -> Any:
    total, warmup = recipe.epochs * per_epoch, round(recipe.warmup * per_epoch)

    def rate(count: Any) -> Any:
        step = jnp.asarray(count, jnp.float64)
        progress = jnp.clip((step - warmup) / float(total - warmup), 0.0, 1.0)
        cosine = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        return cosine * jnp.minimum(1.0, step / warmup)

    return rate
