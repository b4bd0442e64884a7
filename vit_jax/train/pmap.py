"""One pure step on several devices by `jax.pmap`: each has a copy of the whole state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_jax.scanned import UNROLLED, Loop
from vit_jax.stacks import stack, unstack
from vit_jax.step import Batch, TrainState, init_state, make_eval_step
from vit_jax.train.checks import check_batch_size, check_kernel
from vit_jax.train.program import CompiledRun, Device, held_together, make_step

AXIS = "data"


def make_pmap_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    *,
    devices: Sequence[Device] | None = None,
    frozen: Collection[str] = (),
    lora: Lora | None = None,
    loop: Loop = UNROLLED,
) -> CompiledRun:
    """Make a program with `jax.pmap`; see `vit_jax.train.spread.make_program`.

    On n devices every leaf of the state is (n, ...), a copy for each, and a batch of B rows is
    (n, B / n, ...). Gradients and metrics are added by the name of the mapped axis.

    Args:
        devices: default: all local ones.

    Raises:
        ConfigError: a batch that the devices cannot share evenly, an attention kernel that they do not
            run, or several processes.
        InputError: an attention kernel that cannot do what the schema asks for.
    """
    if (together := jax.process_count()) > 1:
        raise ConfigError(f"--parallel pmap: for one process, and {together} train together; use --mesh")
    devices = list(devices or jax.local_devices())
    check_batch_size(recipe, n := len(devices))
    check_kernel(cfg, recipe, devices)
    mesh = jax.make_mesh((n,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)
    split = NamedSharding(mesh, P(AXIS))
    together = held_together(cfg, recipe, loop, frozen, lora)

    def initialise() -> TrainState:
        return stack(init_state(cfg, recipe, steps_per_epoch, lora), together)

    def replicate(state: TrainState) -> TrainState:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), state)

    def place_state(state: TrainState) -> TrainState:
        return jax.device_put(
            jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), stack(state, together)), split
        )

    def place_batch(batch: Mapping[str, Any]) -> Batch:
        per_device = {name: x.reshape(n, len(x) // n, *x.shape[1:]) for name, x in batch.items()}
        return jax.device_put(per_device, split)

    def first_copy(x: jax.Array) -> np.ndarray:
        return np.array(x.addressable_shards[0].data, copy=True).reshape(x.shape[1:])

    return CompiledRun(
        num_devices=n,
        initialise=jax.jit(lambda: replicate(initialise()), out_shardings=split),
        abstract_state=unstack(jax.eval_shape(initialise)),
        place_state=place_state,
        place_batch=place_batch,
        train_step=jax.pmap(
            make_step(cfg, recipe, steps_per_epoch, frozen, lora, loop, AXIS),
            axis_name=AXIS,
            donate_argnums=0,
            devices=devices,
        ),
        eval_step=jax.pmap(
            make_eval_step(cfg, recipe, axis_name=AXIS, loop=loop, lora=lora),
            axis_name=AXIS,
            devices=devices,
        ),
        fetch=lambda tree: unstack(jax.tree.map(first_copy, tree)),
    )
