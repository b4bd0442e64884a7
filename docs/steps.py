"""Three clipped AdamW steps of the model in port.py, and of its port, with torch's and optax's defaults.

python docs/steps.py torch.trace flax.trace
"""

import sys

import numpy as np
import port

import parity

LABELS = np.array([3, 8])


def in_torch(path: str) -> None:
    """Train the original, recorded."""
    import torch

    model, images = port.original()
    model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with parity.record(path, model, optimizer=optimizer, program=f"{port.__file__}:original") as trace:
        for _ in range(3):
            with trace.step(images=images, labels=LABELS):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images), torch.from_numpy(LABELS))
                trace.log("loss", loss)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()


def in_flax(path: str) -> None:
    """Train the port, recorded."""
    import jax
    import optax

    jax.config.update("jax_enable_x64", True)
    model, variables, images = port.corrected()
    params = jax.tree.map(lambda x: jax.numpy.asarray(x, "float64"), variables["params"])
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-3))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, images, labels):
        def loss_fn(params):
            logits = model.apply({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_fn)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss, gradients

    with parity.record(path, model, program=f"{port.__file__}:corrected") as trace:
        for _ in range(3):
            with trace.step(images=images, labels=LABELS):
                trace.log("parameters", params)
                params, state, loss, gradients = step(params, state, images, LABELS)
                trace.log("loss", loss)
                trace.log("gradients", gradients)
                trace.log("moments", state)
                trace.log("updated", params)


if __name__ == "__main__":
    in_torch(sys.argv[1])
    in_flax(sys.argv[2])
