"""The optimiser of a recipe, and the moving average of the parameters."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vit_config import Recipe
from vit_config.init import is_fixed
from vit_config.layer_decay import layer_scales
from vit_config.recipe import decay_mask, decay_strength
from vit_config.schedule import average_decay, learning_rate
from vit_jax.functional import Params
from vit_jax.stacks import along_stack, is_stack, members, ndims


def make_optimizer(recipe: Recipe, steps_per_epoch: int) -> optax.GradientTransformation:
    """Build the recipe's update rule for parameters by common name, stacks (`vit_jax.stacks`) included.

    Clip to the global norm; Adam (arXiv 1412.6980) with bias correction, or a running sum of gradients
    (``sgd``); decay added to the gradient before the moments (``adam``, ``sgd``) or to the update after
    them (``adamw``, arXiv 1711.05101, and ``lamb``, arXiv 1904.00962, which then brings each decayed
    parameter's update to the parameter's norm); times the layer's share of the learning rate of the
    step, evaluated in float64 where JAX has it.

    Its ``init`` raises ConfigError where the recipe lists a name that the parameters do not have.
    """

    def decayed(params: Params) -> dict[str, bool]:
        mask = decay_mask(recipe, ndims(params))
        return {name: mask[members(name)[0]] for name in params}

    decay = optax.add_decayed_weights(decay_strength(recipe), mask=decayed)
    if recipe.optimizer == "sgd":
        direction = (
            optax.trace(recipe.momentum, recipe.nesterov) if recipe.momentum else optax.identity()
        )
    else:
        direction = scale_by_adam(recipe.beta1, recipe.beta2, recipe.adam_eps)
    steps = (direction, decay) if recipe.optimizer in ("adamw", "lamb") else (decay, direction)
    if recipe.optimizer == "lamb":
        steps = (*steps, optax.masked(_scale_by_trust_ratio(), decayed))
    return optax.chain(
        clip_by_global_norm(recipe.clip_norm, recipe.clip_eps),
        *steps,
        scale_by_layer(recipe),
        optax.scale_by_learning_rate(lambda step: learning_rate(recipe, step, steps_per_epoch, jnp)),
    )


def scale_by_adam(beta1: float, beta2: float, eps: float) -> optax.GradientTransformation:
    """Scale updates to Adam's direction (arXiv 1412.6980, algorithm 1), with the state that optax keeps.

    optax corrects the bias by 1 - beta^t with beta in float32, which leaves five digits where beta is
    0.999; -expm1(t log beta), with the logarithm taken in float64, loses none.
    """
    logs = [math.log(beta) if beta else -math.inf for beta in (beta1, beta2)]

    def update(
        updates: Any, state: optax.ScaleByAdamState, params: Any = None
    ) -> tuple[Any, optax.ScaleByAdamState]:
        count = state.count + 1
        mu = jax.tree.map(lambda g, m: beta1 * m + (1.0 - beta1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, v: beta2 * v + (1.0 - beta2) * g * g, updates, state.nu)
        first, second = (-jnp.expm1(count * log) for log in logs)

        def direction(m: jax.Array, v: jax.Array) -> jax.Array:
            return (m / first.astype(m.dtype)) / (jnp.sqrt(v / second.astype(v.dtype)) + eps)

        return jax.tree.map(direction, mu, nu), optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(optax.scale_by_adam().init, update)  # pyright: ignore


def scale_by_layer(recipe: Recipe) -> optax.GradientTransformation:
    """Multiply each update by its layer's share of the learning rate."""
    if recipe.layer_decay == 1.0:
        return optax.identity()

    def scale(updates: Any, params: Any) -> Any:
        scales = layer_scales(recipe, [member for name in updates for member in members(name)])
        return {name: value * along_stack(name, value, scales) for name, value in updates.items()}

    return optax.stateless(scale)


def _scale_by_trust_ratio() -> optax.GradientTransformation:
    """Scale updates by LAMB's trust ratio (arXiv 1904.00962, algorithm 2), in a stack tensor by
    tensor."""
    ratio = optax.scale_by_trust_ratio()

    def scale(updates: Any, params: Any) -> Any:
        def one(update: jax.Array, param: jax.Array) -> Any:
            return ratio.update(update, ratio.init(param), param)[0]

        return {
            name: update
            if isinstance(update, optax.MaskedNode)
            else (jax.vmap(one) if is_stack(name) else one)(update, params[name])
            for name, update in updates.items()
        }

    return optax.stateless(scale)


def clip_by_global_norm(max_norm: float | None, eps: float = 0.0) -> optax.GradientTransformation:
    """Scale gradients by min(1, max_norm / (norm + eps))."""
    if max_norm is None:
        return optax.identity()

    def clip(updates: Any, params: Any) -> Any:
        scale = jnp.minimum(max_norm / (optax.tree.norm(updates) + eps), 1.0)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates)

    return optax.stateless(clip)


def init_ema(recipe: Recipe, params: Params) -> Params | None:
    """Return the average before the first update, a copy of the parameters; None without average."""
    return None if recipe.ema is None else {name: jnp.copy(value) for name, value in params.items()}


def update_ema(recipe: Recipe, ema: Params | None, params: Params, updates: jax.Array) -> Params | None:
    """Return the average after update `updates`, from 1: ema <- decay ema + (1 - decay) params. What no
    training changes stays as it is: it may be infinite."""
    if recipe.ema is None or ema is None:
        return None
    decay = average_decay(recipe, updates, jnp)

    def averaged(mean: jax.Array, value: jax.Array) -> jax.Array:
        return (decay * mean + (1.0 - decay) * value).astype(value.dtype)

    return {name: mean if is_fixed(name) else averaged(mean, params[name]) for name, mean in ema.items()}
