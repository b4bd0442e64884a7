"""One pure step on all local devices: `jax.jit` over a mesh, or `jax.pmap`.

Both split the batch over the devices and keep one logical state; the host sees that state, whole and
unsplit, whichever was chosen, so a checkpoint of one can be continued by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from vit_config import ConfigError, InputError, Recipe, ViTConfig
from vit_config.lora import Lora
from vit_config.recipe import is_decayed
from vit_config.schedule import learning_rate
from vit_jax.compiling import compiler_options
from vit_jax.drop import Dropout
from vit_jax.functional import Params
from vit_jax.kernels import attend
from vit_jax.scanned import UNROLLED, Gather, Loop, stacks
from vit_jax.shares import Shares
from vit_jax.stacks import is_stack, members, stack, unstack
from vit_jax.step import (
    Batch,
    Metrics,
    TrainState,
    init_state,
    make_eval_step,
    make_gradients,
    make_train_step,
    make_update,
)
from vit_jax.train.layout import leaf_name
from vit_jax.weights import abstract_model

Parallel = Literal["jit", "pmap"]
Sharding = Literal["replicated", "full"]

Device = Any
"""A `jax.Device`, which type checkers take for a variable."""

AXIS = "data"


@dataclass(frozen=True)
class Program:
    """The functions of one training run, compiled for some devices."""

    num_devices: int
    initialise: Callable[[], TrainState]
    """The state before the first update, on the devices."""
    abstract_state: TrainState
    """Shapes and types of the logical state, `jax.ShapeDtypeStruct`."""
    place_state: Callable[[Any], TrainState]
    """A logical state of numpy arrays, copied to the devices."""
    place_batch: Callable[[Mapping[str, Any]], Batch]
    """A batch of numpy arrays, split over the devices."""
    train_step: Callable[[TrainState, Batch], tuple[TrainState, Metrics]]
    """As `vit_jax.step.make_train_step`; the state passed in is used up."""
    eval_step: Callable[[Params, Batch], Metrics]
    """As `vit_jax.step.make_eval_step`."""
    fetch: Callable[[Any], Any]
    """A state or metrics from the devices, as numpy arrays of their own memory."""
    rows: np.ndarray | None = None
    """Which rows of every batch this process's devices hold, and `place_batch` takes; None for all."""
    own_part: Callable[[TrainState], TrainState] | None = None
    """What this host writes of a state, where several write."""

    @property
    def store(self) -> Callable[[TrainState], Any]:
        """A state as checkpoints take it."""
        return self.own_part or self.fetch


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
) -> Program:
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
    return _pmap_program(cfg, recipe, steps_per_epoch, devices, frozen, lora, loop)


def check_batch_size(recipe: Recipe, num_devices: int) -> None:
    """Refuse a batch that the devices cannot share evenly, in each of the parts it is computed in.

    Raises:
        ConfigError: names the nearest sizes that they can.
    """
    size, parts = recipe.batch_size, num_devices * recipe.accumulate
    if size % parts:
        below, above = size // parts * parts, -(-size // parts) * parts
        sizes = [str(each) for each in (below, above) if each]
        in_parts = f", each in accumulate = {recipe.accumulate} parts" if recipe.accumulate > 1 else ""
        raise ConfigError(
            f"batch_size = {size} cannot be split evenly over {num_devices} devices{in_parts}; use"
            f" {' or '.join(sizes)}"
        )


def check_kernel(cfg: ViTConfig, recipe: Recipe, devices: Sequence[Device]) -> None:
    """Compile a fast attention kernel and its gradient, for one device's share of a batch.

    Raises:
        ConfigError: the device or its libraries do not run it; the message is what they say.
        InputError: the kernel cannot do what the schema asks for.
    """
    if recipe.kernel == "reference":
        return
    tokens = cfg.num_prefix_tokens + cfg.num_patches
    shape = (recipe.batch_size // len(devices), tokens, cfg.num_heads, cfg.head_dim)
    q = jax.ShapeDtypeStruct(shape, jnp.dtype(recipe.dtype))  # k and v are like it

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        drop, rngs = Dropout(cfg.dropout_attention), nnx.Rngs(dropout=0)
        return attend(q, k, v, kernel=recipe.kernel, drop=drop, rngs=rngs)[0].sum()

    try:
        # a sharding, not a default device: those of a preflight are not attached
        on_first = SingleDeviceSharding(devices[0])
        jax.jit(jax.grad(total, argnums=(0, 1, 2)), in_shardings=on_first).lower(q, q, q).compile()
    except InputError:
        raise
    except Exception as error:  # JAX, XLA and cuDNN have no common kind of error for what they lack
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(
            f'kernel = "{recipe.kernel}" does not run on {devices[0].device_kind} in {recipe.dtype}'
            f' ({reason}); use kernel = "reference" or "xla"'
        ) from None


def shard_fully(shape: tuple[int, ...], num_devices: int) -> P:
    """Split the largest axis that the devices divide; an array without one stays whole."""
    divisible = [axis for axis, size in enumerate(shape) if size and size % num_devices == 0]
    if not divisible:
        return P()
    axis = max(divisible, key=lambda axis: shape[axis])
    return P(*(None,) * axis, AXIS)


def held_together(
    cfg: ViTConfig, recipe: Recipe, loop: Loop, frozen: Collection[str], lora: Lora | None = None
) -> tuple[str, ...]:
    """The names of the stacks that the devices hold (`vit_jax.stacks`): of a loop, where all its blocks'
    tensors are trained alike; adapters are merged into them one by one."""

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
    """One update, or one in which some parameters have no gradient, moments, decay or average of theirs.

    The compiler drops what only leads to a gradient that is replaced by zeros.
    """
    how: dict[str, Any] = {"axis_name": axis_name, "gather": gather, "shares": shares, "loop": loop}
    if not frozen:
        return make_train_step(cfg, recipe, steps_per_epoch, **how)
    gradients = make_gradients(cfg, recipe, lora=lora, **how)
    update = make_update(recipe, steps_per_epoch)

    def stays(name: str) -> bool:
        return members(name)[0] in frozen  # of a stack all or none

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        found, metrics = gradients(state.params, batch, state.step)
        grads = {name: jnp.zeros_like(x) if stays(name) else x for name, x in found.items()}
        metrics |= {
            "grad_norm": optax.tree.norm(grads),
            "learning_rate": learning_rate(recipe, state.step, steps_per_epoch, jnp),
        }
        after = update(state, grads)
        params = {name: state.params[name] if stays(name) else x for name, x in after.params.items()}
        ema = after.ema and {n: params[n] if stays(n) else x for n, x in after.ema.items()}
        return after._replace(params=params, ema=ema), metrics

    return train_step


def _jit_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    sharding: Sharding,
    devices: list[Device],
    frozen: Collection[str],
    lora: Lora | None,
    loop: Loop,
) -> Program:
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
    return Program(
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


def _pmap_program(
    cfg: ViTConfig,
    recipe: Recipe,
    steps_per_epoch: int,
    devices: list[Device],
    frozen: Collection[str],
    lora: Lora | None,
    loop: Loop,
) -> Program:
    n = len(devices)
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

    return Program(
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
