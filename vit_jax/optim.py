"""The optimiser of a recipe."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from vit_config import Recipe
from vit_config.recipe import is_decayed, learning_rate
from vit_jax.functional import Params


def make_optimizer(recipe: Recipe, steps_per_epoch: int) -> optax.GradientTransformation:
    """The recipe's update rule over parameters keyed by common name.

    Clip to the global norm; Adam (arXiv 1412.6980) with bias correction; decay added to the gradient
    before the moments (``adam``) or to the update after them (``adamw``, arXiv 1711.05101); times the
    learning rate of the step, evaluated in float64 where JAX has it.
    """

    def decayed(params: Params) -> dict[str, bool]:
        return {name: is_decayed(recipe, name, value.ndim) for name, value in params.items()}

    decay = optax.add_decayed_weights(recipe.weight_decay, mask=decayed)
    adam = optax.scale_by_adam(recipe.beta1, recipe.beta2, recipe.adam_eps)
    return optax.chain(
        clip_by_global_norm(recipe.clip_norm),
        *((adam, decay) if recipe.optimizer == "adamw" else (decay, adam)),
        optax.scale_by_learning_rate(lambda step: learning_rate(recipe, step, steps_per_epoch, jnp)),
    )


def clip_by_global_norm(max_norm: float | None) -> optax.GradientTransformation:
    """Scale gradients by min(1, max_norm / norm); nothing is added to the norm."""
    if max_norm is None:
        return optax.identity()

    def clip(updates: Any, params: Any) -> Any:
        norm = optax.tree.norm(updates)
        scale = jnp.where(norm > max_norm, max_norm / norm, 1.0)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates)

    return optax.stateless(clip)
