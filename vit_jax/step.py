"""One training step and one evaluation step, as pure functions made from a schema and a recipe."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from vit_config import Recipe, ViTConfig, ViTOutput
from vit_config.adapters import draw_adapters, merge_adapters
from vit_config.lora import Lora
from vit_config.recipe import check_distillation, check_parts
from vit_config.schedule import learning_rate
from vit_jax.functional import Params, get_params, make_apply
from vit_jax.loss import correct, cross_entropy, distillation
from vit_jax.model import ViT
from vit_jax.optim import init_ema, make_optimizer, update_ema
from vit_jax.scanned import UNROLLED, Gather, Loop
from vit_jax.shares import Shares, mean_of

Batch = dict[str, jax.Array]
"""``image`` (B, H, W, C), ``label`` (B,), or (B, classes) for mixed images or several labels; for
distillation the teacher's logits ``teacher`` (B, classes); for evaluation also ``mask`` (B,), 0 for
padding."""
Metrics = dict[str, jax.Array]


class TrainState(NamedTuple):
    """Everything that a training step changes; a pytree."""

    step: jax.Array
    """Updates done so far, an int32 scalar; with the recipe's seed it also fixes dropout."""
    params: Params
    opt_state: Any
    ema: Params | None = None
    """The average of the parameters, if the recipe keeps one."""

    @property
    def averaged(self) -> Params:
        """The parameters to evaluate: the average, or the current ones if no average is kept."""
        return self.params if self.ema is None else self.ema


def init_state(
    cfg: ViTConfig, recipe: Recipe, steps_per_epoch: int, lora: Lora | None = None
) -> TrainState:
    """Create the state before the first update; call this under `jax.jit` to allocate it sharded."""
    dtype = jnp.float64 if recipe.dtype == "float64" else jnp.float32
    params = get_params(ViT(cfg, rngs=nnx.Rngs(recipe.seed)))
    params |= {name: jnp.asarray(x) for name, x in draw_adapters(lora, cfg, recipe.seed).items()}
    params = {name: value.astype(dtype) for name, value in params.items()}
    opt_state = make_optimizer(recipe, steps_per_epoch).init(params)
    return TrainState(jnp.zeros((), jnp.int32), params, opt_state, init_ema(recipe, params))


def make_train_step(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    *,
    axis_name: str | None = None,
    gather: Gather | None = None,
    shares: Shares | None = None,
    loop: Loop = UNROLLED,
) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """Make the pure function of one update.

    Args:
        axis_name: the mapped axis over which `jax.pmap` splits the batch; None if the batch is
            whole, as under `jax.jit`.
        gather, shares, loop: see `make_gradients`.

    Returns:
        ``(state, batch) -> (state, metrics)``; metrics are the mean loss, the accuracy, the global
        norm of the gradient and the learning rate, all scalars, of the batch before the update.
    """
    how: dict[str, Any] = {"axis_name": axis_name, "gather": gather, "shares": shares, "loop": loop}
    gradients = make_gradients(cfg, recipe, **how)
    update = make_update(recipe, steps_per_epoch)

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        grads, metrics = gradients(state.params, batch, state.step)
        metrics |= {
            "grad_norm": optax.tree.norm(grads),
            "learning_rate": learning_rate(recipe, state.step, steps_per_epoch, jnp),
        }
        return update(state, grads), metrics

    return train_step


def make_gradients(
    cfg: ViTConfig,
    recipe: Recipe,
    *,
    axis_name: str | None = None,
    gather: Gather | None = None,
    shares: Shares | None = None,
    loop: Loop = UNROLLED,
    lora: Lora | None = None,
) -> Callable[[Params, Batch, jax.Array], tuple[Params, Metrics]]:
    """Make the pure first half of an update: ``(params, batch, step) -> (gradients, metrics)``.

    Gradients are those of the mean loss over the batch, not clipped yet; metrics are the mean loss
    and the accuracy. A batch computed in n parts is averaged over the parts: part i has the images
    i, i + n, i + 2 n and so on, so that each device keeps its own share.

    Args:
        axis_name: see `make_train_step`.
        gather: function applied to the parameters, in the compute type, before the model uses them.
        shares: devices that each compute the gradients of their rows and add them in the recipe's
            type; it takes the place of `gather`.
        loop: how the blocks of the model are run.
        lora: adapters among the parameters, merged into the weights before the model is called.

    Raises:
        ConfigError: the recipe distills, and the model has no head for it.
    """
    check_distillation(recipe, cfg)
    apply = make_apply(
        cfg, kernel=recipe.kernel, loop=loop, gather=gather if shares is None else shares.gather
    )
    dtype, mapped = jnp.dtype(recipe.dtype), axis_name if shares is None else shares.batch_axes

    def loss_fn(params: Params, batch: Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        computed = merge_adapters(params, lora, transposed=True)
        if shares is None:  # else `shares.gather` casts: its derivative adds gradients in their own type
            computed = {name: value.astype(dtype) for name, value in computed.items()}
        images = batch["image"].astype(dtype)
        output = apply(computed, images, return_tokens=False, rngs=nnx.Rngs(dropout=key))
        loss = image_loss(recipe, output, batch)
        right = correct(output.logits, batch["label"], several=recipe.several)
        return loss.mean(), right.mean(dtype=loss.dtype)

    grad_fn = jax.value_and_grad(loss_fn, has_aux=True)

    def in_parts(params: Params, batch: Batch, key: jax.Array) -> Any:
        count = recipe.accumulate
        parts = {
            name: jnp.swapaxes(x.reshape(-1, count, *x.shape[1:]), 0, 1)  # (parts, B / parts, ...)
            for name, x in batch.items()
        }

        def add(total: Any, part: tuple[Batch, jax.Array]) -> tuple[Any, None]:
            terms = grad_fn(params, part[0], jax.random.fold_in(key, part[1]))
            return jax.tree.map(jnp.add, total, terms), None

        one = jax.tree.map(lambda x: x[0], parts)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(grad_fn, params, one, key)
        )
        total, _ = jax.lax.scan(add, zeros, (parts, jnp.arange(count)))
        return jax.tree.map(lambda x: x / count, total)

    def gradients(params: Params, batch: Batch, step: jax.Array) -> tuple[Params, Metrics]:
        check_parts(recipe, len(batch["image"]))
        key = jax.random.fold_in(jax.random.key(recipe.seed), step)
        if mapped is not None:
            key = jax.random.fold_in(key, jax.lax.axis_index(mapped))
        means, grads = (in_parts if recipe.accumulate > 1 else grad_fn)(params, batch, key)
        if shares is not None:
            means, grads = jax.lax.pmean(means, mapped), shares.mean(grads)
        elif axis_name is not None and recipe.reduce_dtype == "auto":
            means, grads = jax.lax.pmean((means, grads), axis_name)
        elif axis_name is not None:
            count, means = jax.lax.axis_size(axis_name), jax.lax.pmean(means, axis_name)
            grads = {n: mean_of(x, axis_name, count, recipe.reduce_dtype) for n, x in grads.items()}
        loss, accuracy = means
        return grads, {"loss": loss, "accuracy": accuracy}

    return gradients if shares is None else shares.over(gradients)


def image_loss(recipe: Recipe, output: ViTOutput, batch: Batch) -> jax.Array:
    """Compute the loss of each image, (B,)."""
    if recipe.distill == "none":
        return cross_entropy(output.logits, batch["label"], **recipe.loss_options)
    assert output.head_logits is not None
    by_class, by_token = output.head_logits  # (B, classes) each
    labels = cross_entropy(by_class, batch["label"], **recipe.loss_options)
    kind, temperature = recipe.distill, recipe.distill_temperature
    teacher = distillation(by_token, batch["teacher"], kind=kind, temperature=temperature)
    return (1.0 - recipe.distill_weight) * labels + recipe.distill_weight * teacher


def make_update(recipe: Recipe, steps_per_epoch: int) -> Callable[[TrainState, Params], TrainState]:
    """Make the pure second half of an update: ``(state, gradients) -> state``."""
    optimizer = make_optimizer(recipe, steps_per_epoch)

    def update(state: TrainState, grads: Params) -> TrainState:
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = cast(Params, optax.apply_updates(state.params, updates))
        done = state.step + 1
        return TrainState(done, params, opt_state, update_ema(recipe, state.ema, params, done))

    return update


def make_eval_step(
    cfg: ViTConfig,
    recipe: Recipe,
    *,
    axis_name: str | None = None,
    gather: Gather | None = None,
    loop: Loop = UNROLLED,
    lora: Lora | None = None,
) -> Callable[[Params, Batch], Metrics]:
    """Make the pure function that sums loss, right answers and images over one padded batch."""
    apply = make_apply(cfg, kernel=recipe.kernel, loop=loop, gather=gather)
    dtype = jnp.dtype(recipe.dtype)

    def eval_step(params: Params, batch: Batch) -> Metrics:
        whole = merge_adapters(params, lora, transposed=True)
        computed = {name: value.astype(dtype) for name, value in whole.items()}
        logits = apply(computed, batch["image"].astype(dtype), return_tokens=False).logits
        mask = batch["mask"]
        sums = {
            "loss": (cross_entropy(logits, batch["label"], kind=recipe.loss) * mask).sum(),
            "correct": (correct(logits, batch["label"], several=recipe.several) * mask).sum(),
            "count": mask.sum(),
        }
        return sums if axis_name is None else jax.lax.psum(sums, axis_name)

    return eval_step
