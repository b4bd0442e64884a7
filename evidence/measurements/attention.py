"""Time cuDNN's attention, value and gradients, by the multiple to which tokens are padded.

    python -m evidence.measurements.attention      # on a GPU

64 images, 6 heads of 64, bfloat16. Prints milliseconds, and how far the gradients are from those of
float32. Exit status: 0, or 2 where cuDNN cannot run.
"""

import sys
import time

import jax
import jax.numpy as jnp

from evidence import positional
from vit_config.terminal import complain, say
from vit_jax import kernels

RUNS = 20


def gradients_of(kernel):
    """A function of q, k and v that gives a loss of attention's outputs, and its gradients."""

    def loss(q, k, v):
        return (kernels.attend(q, k, v, kernel=kernel)[0].astype(jnp.float32) ** 2).sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))


def main() -> int:
    """Print a line for each number of tokens and each multiple."""
    if jax.default_backend() != "gpu":
        complain(f"attention: cuDNN needs a GPU, and JAX computes on {jax.default_backend()}")
        return 2
    key = jax.random.key(0)
    for tokens in (197, 201):
        shape = (64, tokens, 6, 64)
        q, k, v = (jax.random.normal(jax.random.fold_in(key, i), shape, jnp.bfloat16) for i in range(3))
        with jax.default_matmul_precision("highest"):
            _, wanted = gradients_of("reference")(*(x.astype(jnp.float32) for x in (q, k, v)))
        for kernels.CUDNN_TOKENS in (2, 8, 64):
            run = gradients_of("cudnn")
            _, actual = jax.block_until_ready(run(q, k, v))
            errors = [
                float(jnp.linalg.norm((a - b).ravel()) / jnp.linalg.norm(b.ravel()))
                for a, b in zip(actual, wanted, strict=True)
            ]
            started = time.perf_counter()
            for _ in range(RUNS):
                done = run(q, k, v)
            jax.block_until_ready(done)
            ms = 1e3 * (time.perf_counter() - started) / RUNS
            say(f"{tokens} tokens, a multiple of {kernels.CUDNN_TOKENS}: {ms:.2f} ms, {max(errors):.1e}")
    return 0


if __name__ == "__main__":
    positional(__doc__)
    sys.exit(main())
