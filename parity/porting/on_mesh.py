"""Parameters of a JAX model, split over the devices of a mesh."""

from __future__ import annotations

from typing import Any

from vit_config import ConfigError


def check_mesh(mesh: Any) -> None:
    """Refuse what is no `jax.sharding.Mesh`. Raises ConfigError."""
    from jax.sharding import Mesh

    if not isinstance(mesh, Mesh):
        raise ConfigError(f"mesh is a {type(mesh).__name__}; give a jax.sharding.Mesh")


def spread(model: Any, mesh: Any) -> None:
    """Split each parameter over all devices of a mesh, along its first axis that their number divides;
    every device has a whole copy of the others.

    Args:
        model: a `vit_jax.ViT`, which is changed.
        mesh: a `jax.sharding.Mesh`. Axes of JAX's default type, explicit, become automatic ones: every
            reshape of a model would have to say where its result lies.
    """
    import jax
    from flax import nnx
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    automatic = (AxisType.Auto,) * len(mesh.axis_names)
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=automatic)

    def place(value: jax.Array) -> NamedSharding:
        divided = (axis for axis, size in enumerate(value.shape) if size % mesh.size == 0)
        axis = next(divided, None)
        spec = PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, mesh.axis_names)
        return NamedSharding(mesh, spec)

    state = nnx.state(model)
    nnx.update(model, jax.device_put(state, jax.tree.map(place, state)))
