"""The functions of one training run, and the step shared by all ways to spread it over devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_config import Recipe, ViTConfig
from vit_config.lora import Lora
from vit_config.recipe import is_decayed
from vit_config.schedule import learning_rate
from vit_jax.functional import Params
from vit_jax.scanned import Gather, Loop, stacks
from vit_jax.shares import Shares
from vit_jax.stacks import members
from vit_jax.step import Batch, Metrics, TrainState, make_gradients, make_train_step, make_update
from vit_jax.weights import abstract_model

Device = Any
"""A `jax.Device`, which type checkers take for a variable."""


@dataclass(frozen=True)
class CompiledRun:
    """The functions of one training run, compiled for some devices."""

    num_devices: int
    initialise: Callable[[], TrainState]
    """Creates the state before the first update, on the devices."""
    abstract_state: TrainState
    """Shapes and types of the logical state, `jax.ShapeDtypeStruct`."""
    place_state: Callable[[Any], TrainState]
    """Copies a logical state of numpy arrays to the devices."""
    place_batch: Callable[[Mapping[str, Any]], Batch]
    """Splits a batch of numpy arrays over the devices."""
    train_step: Callable[[TrainState, Batch], tuple[TrainState, Metrics]]
    """Training step as `vit_jax.step.make_train_step` makes it; the state passed in is used up."""
    eval_step: Callable[[Params, Batch], Metrics]
    """Evaluation step as `vit_jax.step.make_eval_step` makes it."""
    fetch: Callable[[Any], Any]
    """Copies a state or metrics from the devices to numpy arrays of their own memory."""
    rows: np.ndarray | None = None
    """Rows of every batch that this process's devices hold and `place_batch` takes; None for all."""
    own_part: Callable[[TrainState], TrainState] | None = None
    """Returns the part of a state that this host writes, where several hosts write."""

    @property
    def store(self) -> Callable[[TrainState], Any]:
        """Function that brings a state to the form that checkpoints take."""
        return self.own_part or self.fetch

    def fence(self, metrics: Any) -> Callable[[], object]:
        """Return a function that waits until the step with these metrics has been computed."""
        return partial(jax.block_until_ready, metrics)


def held_together(
    cfg: ViTConfig, recipe: Recipe, loop: Loop, frozen: Collection[str], lora: Lora | None = None
) -> tuple[str, ...]:
    """Return the names of the stacks that the devices hold (`vit_jax.stacks`): those of a loop whose
    blocks' tensors are all trained alike; none with adapters, which are merged into the tensors one
    by one."""

    def rules(name: str, ndim: int) -> tuple[bool, bool]:
        return name in frozen, is_decayed(recipe, name, ndim)

    return () if lora else stacks(abstract_model(cfg).blocks, loop, rules)


def make_step(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    frozen: Collection[str],
    lora: Lora | None,
    loop: Loop,
    axis_name: str | None = None,
    gather: Gather | None = None,
    shares: Shares | None = None,
) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """Make the function of one update; frozen parameters have no gradient, moments, decay or average.

    The compiler drops computations that lead only to a gradient that is replaced by zeros.
    """
    how: dict[str, Any] = {"axis_name": axis_name, "gather": gather, "shares": shares, "loop": loop}
    if not frozen:
        return make_train_step(cfg, recipe, steps_per_epoch, **how)
    gradients = make_gradients(cfg, recipe, lora=lora, **how)
    update = make_update(recipe, steps_per_epoch)

    def stays(name: str) -> bool:
        return members(name)[0] in frozen  # of a stack all or none

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        all_grads, metrics = gradients(state.params, batch, state.step)
        grads = {name: jnp.zeros_like(x) if stays(name) else x for name, x in all_grads.items()}
        metrics |= {
            "grad_norm": optax.tree.norm(grads),
            "learning_rate": learning_rate(recipe, state.step, steps_per_epoch, jnp),
        }
        after = update(state, grads)
        params = {name: state.params[name] if stays(name) else x for name, x in after.params.items()}
        ema = after.ema and {n: params[n] if stays(n) else x for n, x in after.ema.items()}
        return after._replace(params=params, ema=ema), metrics

    return train_step
