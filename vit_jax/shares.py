"""Gradients of a batch that devices share, added in a type that the recipe chooses.

By default the compiler adds gradients in the type they have: on a TPU bfloat16 gradients in
bfloat16. Here each device computes the gradients of its rows by itself, under `jax.shard_map`, and
every sum is explicit, with its type. Split parameters are gathered in the compute type, by a
function whose derivative adds their gradients and gives each device its part (ZeRO stage 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

Params = dict[str, jax.Array]


def mean_of(sums: jax.Array, axes: str | tuple[str, ...], count: int, dtype: str) -> jax.Array:
    """Add over mapped axes, in a given type, and divide by `count`, the number of addends."""
    return jax.lax.psum(sums.astype(dtype), axes).astype(sums.dtype) / count


@dataclass(frozen=True)
class Shares:
    """Devices of a mesh, each of which computes the gradients of its rows of a batch.

    Args:
        specs: how each parameter is split; those that are not named are whole.
        batch_axes: the axes of the mesh that split the batch; the compiler handles the others.
        split_axis: the one of them that splits parameters, too.
        computed: the compute type of the model.
        reduced: the type in which gradients are added.
    """

    mesh: Mesh
    specs: Mapping[str, P]
    batch_axes: tuple[str, ...]
    split_axis: str
    computed: str
    reduced: str

    @property
    def count(self) -> int:
        """Number of devices with rows of their own."""
        return math.prod(self.mesh.shape[axis] for axis in self.batch_axes)

    def gather(self, params: Params) -> Params:
        """Return parameters as a layer uses them: in the compute type, whole along the batch's axes."""
        return {name: self._gathered(name)(value) for name, value in params.items()}

    def _gathered(self, name: str) -> Callable[[jax.Array], jax.Array]:
        spec = self.specs.get(name, P())
        if self.split_axis not in spec:
            return lambda value: value.astype(self.computed)
        axis = spec.index(self.split_axis)

        def whole(value: jax.Array) -> jax.Array:
            return jax.lax.all_gather(
                value.astype(self.computed), self.split_axis, axis=axis, tiled=True
            )

        def add(kind: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
            part = jax.lax.psum_scatter(
                gradient.astype(self.reduced), self.split_axis, scatter_dimension=axis, tiled=True
            )
            return (part.astype(kind.dtype),)

        gathered = jax.custom_vjp(whole)
        gathered.defvjp(lambda value: (whole(value), jnp.zeros((), value.dtype)), add)
        return gathered

    def mean(self, grads: Params) -> Params:
        """Average gradients over all devices; those of split parameters arrive summed over the axis
        that splits them."""
        others = tuple(axis for axis in self.batch_axes if axis != self.split_axis)

        def left(name: str) -> tuple[str, ...]:
            return others if self.split_axis in self.specs.get(name, P()) else self.batch_axes

        return {name: mean_of(x, left(name), self.count, self.reduced) for name, x in grads.items()}

    def over(self, gradients: Callable[..., Any]) -> Callable[..., Any]:
        """Run ``(params, batch, step) -> (gradients, metrics)`` on each device's share, as one
        function."""

        def split(name: str) -> P:
            spec = self.specs.get(name, P())
            return P(*(axis if axis in self.batch_axes else None for axis in spec))

        alone = {axis for axis, size in self.mesh.shape.items() if size == 1}

        def both(params: Params, batch: Any, step: jax.Array) -> Any:
            manual = {name: split(name) for name in params}
            return jax.shard_map(
                gradients,
                mesh=self.mesh,
                in_specs=(manual, P(self.batch_axes), P()),
                out_specs=(manual, P()),
                axis_names={*self.batch_axes, *alone},
                check_vma=False,  # else JAX adds sums of its own, in the gradients' type
            )(params, batch, step)

        return both
