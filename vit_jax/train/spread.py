"""One pure step over a mesh of named axes, on this machine's devices or on those of several hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from vit_config import ConfigError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_jax.compiling import compiler_options
from vit_jax.scanned import UNROLLED, Loop
from vit_jax.shares import Shares
from vit_jax.step import TrainState, init_state, make_eval_step
from vit_jax.train.checks import check_batch_size, check_kernel
from vit_jax.train.layout import MeshLayout, make_layout
from vit_jax.train.mesh import BATCH_AXES, ONE_AXIS, make_mesh, parse_mesh
from vit_jax.train.program import CompiledRun, Device, held_together, make_step


def make_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    *,
    mesh: str = ONE_AXIS,
    devices: Sequence[Device] | None = None,
    frozen: Collection[str] = (),
    lora: Lora | None = None,
    loop: Loop = UNROLLED,
) -> CompiledRun:
    """Spread the pure steps over a mesh by `jax.jit`.

    The host sees one state, whole and unsplit, whatever the mesh, so a checkpoint of one mesh, or of
    `jax.pmap`, can be continued by another. Adapters, which are small, are whole on every device.

    Args:
        mesh: the mesh's axes, see `vit_jax.train.mesh.parse_mesh`.
        devices: default: all devices of all hosts.
        frozen: parameters that stay as they are; their gradients are not computed.
        lora: adapters beside the model's parameters.
        loop: how the blocks of the model are run.

    Raises:
        ConfigError: the mesh does not fit the devices, the model, the batch, or the type in which
            the recipe adds gradients; or the devices do not run the attention kernel.
        InputError: an attention kernel that cannot do what the schema asks for.
    """
    devices = list(devices or jax.devices())
    sizes = parse_mesh(mesh, len(devices))
    shares = sizes["data"] * sizes["fsdp"]
    check_batch_size(recipe, shares)
    layout = make_layout(cfg, make_mesh(sizes, devices), held_together(cfg, recipe, loop, frozen))
    check_kernel(cfg, recipe, devices[:shares])
    whole, split = (NamedSharding(layout.mesh, spec) for spec in (P(), P(BATCH_AXES)))
    options = compiler_options(devices[0].platform)

    def initialise() -> TrainState:
        return layout.pack(init_state(cfg, recipe, steps_per_epoch, lora))

    def place_state(state: Any) -> TrainState:
        return jax.tree.map(place, layout.pack(state), of_state)

    abstract, several = jax.eval_shape(initialise), jax.process_count() > 1
    of_state, usual = layout.of(abstract), layout.unpack(abstract)
    shares = make_shares(layout, recipe, lora)
    step = make_step(
        cfg, recipe, steps_per_epoch, frozen, lora, loop, gather=layout.gather, shares=shares
    )
    eval_step = make_eval_step(cfg, recipe, gather=layout.gather, loop=loop, lora=lora)
    return CompiledRun(
        num_devices=len(devices),
        initialise=jax.jit(initialise, out_shardings=of_state),
        abstract_state=_with_places(layout, usual) if several else usual,
        place_state=_make_place_shares(layout, usual, of_state) if several else place_state,
        place_batch=lambda batch: {
            name: place_rows(x, split, recipe.batch_size) for name, x in batch.items()
        },
        train_step=jax.jit(
            step,
            in_shardings=(of_state, split),
            out_shardings=(of_state, whole),
            donate_argnums=0,
            compiler_options=options,
        ),
        eval_step=jax.jit(
            eval_step,
            in_shardings=(of_state.params, split),
            out_shardings=whole,
            compiler_options=options,
        ),
        fetch=partial(fetch, layout),
        own_part=make_own_part(layout, usual) if several else None,
        rows=batch_rows(split, recipe.batch_size) if several else None,
    )


def make_shares(layout: MeshLayout, recipe: Recipe, lora: Lora | None = None) -> Shares | None:
    """Make the object that adds gradients in the recipe's type; None if the recipe chooses none, or
    if no devices share a batch.

    Raises:
        ConfigError: adapters, which are merged into whole weights, where weights are split; or bfloat16
            where XLA for CPUs ends the process.
    """
    sizes, platform = layout.mesh.shape, layout.mesh.devices.flat[0].platform
    if recipe.reduce_dtype == "auto" or all(sizes[axis] == 1 for axis in BATCH_AXES):
        return None
    if lora is not None and sizes["fsdp"] > 1:
        raise ConfigError(
            f'reduce_dtype = "{recipe.reduce_dtype}" with adapters needs whole weights, but the mesh has'
            f" fsdp = {sizes['fsdp']}; use --mesh data=-1"
        )
    if recipe.reduce_dtype == "bfloat16" and platform == "cpu" and sizes["tensor"] > 1:
        raise ConfigError(  # XLA fails to widen sums in a mesh whose other axes it splits itself
            f'reduce_dtype = "bfloat16" with tensor = {sizes["tensor"]}: XLA cannot compile that for'
            ' CPUs; use reduce_dtype = "float32", or no tensor axis'
        )
    return Shares(layout.mesh, layout.specs, BATCH_AXES, "fsdp", recipe.dtype, recipe.reduce_dtype)


def place(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Copy a host's array to the devices, each of which is given only its own part."""
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _with_places(layout: MeshLayout, usual: TrainState) -> TrainState:
    """Return shapes and types of a state, and where each leaf is stored and read, in its usual shape."""
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        usual,
        layout.stored(usual),
    )


def _make_place_shares(
    layout: MeshLayout, usual: TrainState, of_state: TrainState
) -> Callable[[Any], TrainState]:
    """Make the function that places a state of which hosts have read their shares, or whole tensors."""
    stored = layout.stored(usual)
    pack = jax.jit(layout.pack, in_shardings=(stored,), out_shardings=of_state)

    def place_state(state: Any) -> TrainState:
        return pack(
            jax.tree.map(lambda x, at: x if isinstance(x, jax.Array) else place(x, at), state, stored)
        )

    return place_state


def place_rows(rows: np.ndarray, sharding: NamedSharding, batch_size: int) -> jax.Array:
    """Make this process's rows of a batch its part of the whole batch."""
    shape = (batch_size, *rows.shape[1:])
    return jax.make_array_from_process_local_data(sharding, rows, shape)


def fetch(layout: MeshLayout, tree: Any) -> Any:
    """Copy a state, parameters or metrics to numpy arrays of their own memory, in the usual shapes.

    Arrays that are split over hosts are sent to each of them, one array after the other.
    """

    def to_host(x: jax.Array) -> np.ndarray:
        if x.is_fully_replicated:
            return np.array(x.addressable_data(0), copy=True)
        if x.is_fully_addressable:
            return np.array(x, copy=True)
        return np.array(multihost_utils.process_allgather(x, tiled=True), copy=True)

    return layout.unpack(jax.tree.map(to_host, tree))


def make_own_part(layout: MeshLayout, abstract: TrainState) -> Callable[[TrainState], TrainState]:
    """Make the function that returns this host's part of a state to write, in the usual shapes: the
    part that its devices hold.

    On a CPU the arrays are copies: the next step must not reuse memory that is still being written.
    """
    copies = layout.mesh.devices.flat[0].platform == "cpu"

    def unpack(state: TrainState) -> TrainState:
        return layout.unpack(jax.tree.map(jnp.copy, state) if copies else state)

    return jax.jit(unpack, out_shardings=layout.stored(abstract))


def batch_rows(sharding: NamedSharding, batch_size: int) -> np.ndarray:
    """Return the rows of a batch that this process's devices hold, in order."""
    indices = sharding.addressable_devices_indices_map((batch_size,)).values()
    rows = {row for index in indices if index for row in range(*index[0].indices(batch_size))}
    return np.array(sorted(rows))
