"""One training step and one evaluation step, as pure functions made from a schema and a recipe."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from vit_config import Recipe, ViTConfig
from vit_config.recipe import learning_rate
from vit_jax.functional import Params, get_params, make_apply
from vit_jax.loss import correct, cross_entropy
from vit_jax.model import ViT
from vit_jax.optim import make_optimizer

Batch = dict[str, jax.Array]
"""``image`` (B, H, W, C), ``label`` (B,); for evaluation also ``mask`` (B,), 0 for padding."""
Metrics = dict[str, jax.Array]


class TrainState(NamedTuple):
    """All that changes from step to step; a pytree."""

    step: jax.Array
    """Updates done so far, an int32 scalar; with the recipe's seed it also fixes dropout."""
    params: Params
    opt_state: Any


def init_state(cfg: ViTConfig, recipe: Recipe, steps_per_epoch: int) -> TrainState:
    """The state before the first update; call it under `jax.jit` to allocate it sharded."""
    dtype = jnp.float64 if recipe.dtype == "float64" else jnp.float32
    params = get_params(ViT(cfg, rngs=nnx.Rngs(recipe.seed)))
    params = {name: value.astype(dtype) for name, value in params.items()}
    opt_state = make_optimizer(recipe, steps_per_epoch).init(params)
    return TrainState(jnp.zeros((), jnp.int32), params, opt_state)


def make_train_step(
    cfg: ViTConfig, recipe: Recipe, steps_per_epoch: int, *, axis_name: str | None = None
) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """The pure function of one update.

    Args:
        axis_name: the mapped axis over which `jax.pmap` splits the batch; None where the batch is
            whole, as under `jax.jit`.

    Returns:
        ``(state, batch) -> (state, metrics)``; metrics are the mean loss, the accuracy, the global
        norm of the gradient and the learning rate, all scalars, of the batch before the update.
    """
    apply = make_apply(cfg)
    optimizer = make_optimizer(recipe, steps_per_epoch)
    dtype = jnp.dtype(recipe.dtype)

    def loss_fn(params: Params, batch: Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        computed = {name: value.astype(dtype) for name, value in params.items()}
        images = batch["image"].astype(dtype)
        output = apply(computed, images, kernel=recipe.kernel, rngs=nnx.Rngs(dropout=key))
        loss = cross_entropy(output.logits, batch["label"], smoothing=recipe.label_smoothing)
        return loss.mean(), correct(output.logits, batch["label"]).mean(dtype=loss.dtype)

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(recipe.seed), state.step)
        if axis_name is not None:
            key = jax.random.fold_in(key, jax.lax.axis_index(axis_name))
        grad_fn = jax.value_and_grad(loss_fn, has_aux=True)
        (loss, accuracy), grads = grad_fn(state.params, batch, key)
        if axis_name is not None:
            loss, accuracy, grads = jax.lax.pmean((loss, accuracy, grads), axis_name)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = cast(Params, optax.apply_updates(state.params, updates))
        metrics = {
            "loss": loss,
            "accuracy": accuracy,
            "grad_norm": optax.tree.norm(grads),
            "learning_rate": learning_rate(recipe, state.step, steps_per_epoch, jnp),
        }
        return TrainState(state.step + 1, params, opt_state), metrics

    return train_step


def make_eval_step(
    cfg: ViTConfig, recipe: Recipe, *, axis_name: str | None = None
) -> Callable[[Params, Batch], Metrics]:
    """The pure function that sums loss, right answers and images over one padded batch."""
    apply = make_apply(cfg)
    dtype = jnp.dtype(recipe.dtype)

    def eval_step(params: Params, batch: Batch) -> Metrics:
        computed = {name: value.astype(dtype) for name, value in params.items()}
        logits = apply(computed, batch["image"].astype(dtype), kernel=recipe.kernel).logits
        mask = batch["mask"]
        sums = {
            "loss": (cross_entropy(logits, batch["label"]) * mask).sum(),
            "correct": (correct(logits, batch["label"]) * mask).sum(),
            "count": mask.sum(),
        }
        return sums if axis_name is None else jax.lax.psum(sums, axis_name)

    return eval_step
