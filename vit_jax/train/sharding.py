"""One pure step on all local devices: `jax.jit` over a mesh, or `jax.pmap`.

Both split the batch over the devices and keep one logical state; the host sees that state, whole and
unsplit, whichever was chosen, so a checkpoint of one can be continued by the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_jax.compiling import compiler_options
from vit_jax.scanned import UNROLLED, Loop
from vit_jax.stacks import is_stack, stack, unstack
from vit_jax.step import TrainState, init_state, make_eval_step
from vit_jax.train.checks import check_batch_size, check_kernel
from vit_jax.train.layout import leaf_name
from vit_jax.train.pmap import AXIS, make_pmap_program
from vit_jax.train.program import CompiledRun, Device, held_together, make_step

Parallel = Literal["jit", "pmap"]
Sharding = Literal["replicated", "full"]


def make_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    *,
    parallel: Parallel = "jit",
    sharding: Sharding = "replicated",
    devices: Sequence[Device] | None = None,
    frozen: Collection[str] = (),
    lora: Lora | None = None,
    loop: Loop = UNROLLED,
) -> CompiledRun:
    """Wrap the pure steps for `devices` (default: all local ones).

    Args:
        parallel: `jax.jit` with sharded arguments, or `jax.pmap`.
        sharding: every device holds the whole state, or (``full``, under jit) its share of each
            parameter and optimiser moment.
        frozen: parameters that stay as they are; their gradients are not computed.
        lora: adapters beside the model's parameters.
        loop: how the blocks of the model are run.

    Raises:
        ConfigError: a batch that the devices cannot share evenly, ``full`` under pmap, gradients in
            another type under jit, or an attention kernel that the devices do not run.
        InputError: an attention kernel that cannot do what the schema asks for.
    """
    devices = list(devices or jax.local_devices())
    check_batch_size(recipe, len(devices))
    check_kernel(cfg, recipe, devices)
    if parallel == "jit" and recipe.reduce_dtype != "auto" and len(devices) > 1:
        raise ConfigError(
            f'reduce_dtype = "{recipe.reduce_dtype}" over {len(devices)} devices needs a mesh or pmap;'
            f" add --mesh {'fsdp' if sharding == 'full' else 'data'}=-1"
        )
    if parallel == "jit":
        return _jit_program(cfg, recipe, steps_per_epoch, sharding, devices, frozen, lora, loop)
    if sharding != "replicated":
        raise ConfigError(
            f'sharding = "{sharding}" needs parallel = "jit", but parallel = "{parallel}", which keeps'
            ' the whole state on every device; use "jit"'
        )
    return make_pmap_program(cfg, recipe, steps_per_epoch, devices, frozen, lora, loop)


def shard_fully(shape: tuple[int, ...], num_devices: int) -> P:
    """Split the largest axis that the devices divide; an array without one stays whole."""
    divisible = [axis for axis, size in enumerate(shape) if size and size % num_devices == 0]
    if not divisible:
        return P()
    axis = max(divisible, key=lambda axis: shape[axis])
    return P(*(None,) * axis, AXIS)


def _jit_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    sharding: Sharding,
    devices: list[Device],
    frozen: Collection[str],
    lora: Lora | None,
    loop: Loop,
) -> CompiledRun:
    n = len(devices)
    mesh = jax.make_mesh((n,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P(AXIS))
    options = compiler_options(devices[0].platform)
    together = held_together(cfg, recipe, loop, frozen, lora)

    def initialise() -> TrainState:
        return stack(init_state(cfg, recipe, steps_per_epoch, lora), together)

    abstract = jax.eval_shape(initialise)

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        if sharding == "replicated":
            return whole
        if is_stack(leaf_name(path)):  # blocks stay together: a loop takes them one by one
            return NamedSharding(mesh, P(None, *shard_fully(leaf.shape[1:], n)))
        return NamedSharding(mesh, shard_fully(leaf.shape, n))

    of_state = jax.tree_util.tree_map_with_path(place, abstract)
    return CompiledRun(
        num_devices=n,
        initialise=jax.jit(initialise, out_shardings=of_state),
        abstract_state=unstack(abstract),
        place_state=lambda state: jax.device_put(stack(state, together), of_state),
        place_batch=lambda batch: jax.device_put(dict(batch), split),
        train_step=jax.jit(
            make_step(cfg, recipe, steps_per_epoch, frozen, lora, loop),
            in_shardings=(of_state, split),
            out_shardings=(of_state, whole),
            donate_argnums=0,
            compiler_options=options,
        ),
        eval_step=jax.jit(
            make_eval_step(cfg, recipe, loop=loop, lora=lora),
            in_shardings=(of_state.params, split),
            out_shardings=whole,
            compiler_options=options,
        ),
        # copied: on a CPU the array may be the very buffer that the next step is given to reuse
        fetch=lambda tree: unstack(jax.tree.map(lambda x: np.array(x, copy=True), jax.device_get(tree))),
    )
