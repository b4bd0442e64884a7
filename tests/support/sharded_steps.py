"""One training step on one device, and over a mesh, with its collectives to order."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

RATE = 0.1


def abstract_mesh(sizes, names):
    """Axes along which JAX follows no shardings in types, the default until jax 0.10."""
    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


def arrays():
    rng = np.random.default_rng(0)
    params = {
        "up": rng.normal(size=(5, 8)),
        "bias": rng.normal(size=(8,)),
        "down": rng.normal(size=(8, 3)),
    }
    return params, rng.normal(size=(8, 5)), rng.normal(size=(8, 3))


def loss(params, x, y, total=lambda x: x):
    hidden = jnp.tanh(x @ params["up"] + params["bias"])
    out = total(hidden @ params["down"])
    return ((out - y) ** 2).mean()


def one_device(params, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def data_parallel(fault="", mesh=None):
    """Every device has all parameters and a part of the batch."""
    mesh = mesh or abstract_mesh((4,), ("data",))

    def step(params, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        value = jax.lax.pmean(value, "data")
        if fault == "psum for pmean":
            gradients = jax.lax.psum(gradients, "data")
        elif fault == "doubled":
            gradients = jax.lax.psum(jax.lax.pmean(gradients, "data"), "data")  # doubled
        elif fault == "one leaf missing":
            gradients["up"] = jax.lax.pmean(gradients["up"], "data")
            gradients["down"] = jax.lax.pmean(gradients["down"], "data")
        elif fault != "missing":
            gradients = jax.lax.pmean(gradients, "data")
        return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradients)  # update

    specs = (P(), P("data"), P("data"))
    return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(P(), P()), check_vma=False))


def tensor_parallel(fault="", mesh=None):
    """The hidden layer is split over devices: their products are partial sums."""
    mesh = mesh or abstract_mesh((2, 4), ("data", "model"))

    def total(x):
        if fault == "missing":
            return x
        if fault == "pmean for psum":
            return jax.lax.pmean(x, "model")
        return jax.lax.psum(x, "model")

    def forward(params, x):
        hidden = jnp.tanh(x @ params["up"] + params["bias"])
        partial = hidden @ params["down"]  # a part of the sum
        return total(partial)

    split = {"up": P(None, "model"), "bias": P("model"), "down": P("model")}
    return jax.shard_map(
        forward, mesh=mesh, in_specs=(split, P("data")), out_specs=P("data"), check_vma=False
    )


def forward(params, x):
    return jnp.tanh(x @ params["up"] + params["bias"]) @ params["down"]
