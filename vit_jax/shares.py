"""Gradients of a batch that devices share, added in a type that the recipe chooses.

Where the compiler is told nothing, it adds what it has: on a TPU gradients of bfloat16 in bfloat16. Here
each device computes the gradients of its rows by itself, under `jax.shard_map`, and every sum is written
out, with its type. Parameters that are split are gathered in the type of computing, by the same function
whose derivative adds their gradients and gives each device its part (ZeRO stage 3).
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
    """Add over mapped axes, in a type, and divide by how many were added in all."""
    return jax.lax.psum(sums.astype(dtype), axes).astype(sums.dtype) / count


@dataclass(frozen=True)
class Shares:
    """Devices of a mesh, each of which computes the gradients of its rows of a batch.

    Args:
        specs: what splits each parameter; those that are not named are whole.
        batch_axes: the axes of the mesh that split the batch; the compiler sees to the others.
        split_axis: that of them which splits parameters, too.
        computed: the type that the model computes in.
        reduced: the type that gradients are added in.
    """

    mesh: Mesh
    specs: Mapping[str, P]
    batch_axes: tuple[str, ...]
    split_axis: str
    computed: str
    reduced: str

    @property
    def count(self) -> int:
        """How many devices have rows of their own."""
        return math.prod(self.mesh.shape[axis] for axis in self.batch_axes)

    def gather(self, params: Params) -> Params:
        """Parameters as a layer uses them: in the type of computing, not split over the batch's axes."""
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
        """Gradients over all devices; those of what is split have been added over that axis."""
        others = tuple(axis for axis in self.batch_axes if axis != self.split_axis)

        def left(name: str) -> tuple[str, ...]:
            return others if self.split_axis in self.specs.get(name, P()) else self.batch_axes

        return {name: mean_of(x, left(name), self.count, self.reduced) for name, x in grads.items()}

    def over(self, gradients: Callable[..., Any]) -> Callable[..., Any]:
        """``(params, batch, step) -> (gradients, metrics)`` of one device's share as that of all."""

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
                check_vma=False,  # else JAX adds by itself, in the type it has there
            )(params, batch, step)

        return both
