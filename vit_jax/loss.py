"""The training loss and the count of right answers."""

import jax
import jax.numpy as jnp


def cross_entropy(logits: jax.Array, labels: jax.Array, *, smoothing: float = 0.0) -> jax.Array:
    """Softmax cross entropy of each image, in at least float32.

    Args:
        logits: (B, classes).
        labels: (B,) integers.
        smoothing: share of the target spread evenly over all classes (arXiv 1512.00567, section 7).

    Returns:
        (B,).
    """
    wide = jnp.promote_types(logits.dtype, jnp.float32)
    log_p = jax.nn.log_softmax(logits.astype(wide), axis=-1)  # (B, classes)
    right = jnp.take_along_axis(log_p, labels[:, None], axis=-1)[:, 0]  # (B,)
    return -(1.0 - smoothing) * right - smoothing * log_p.mean(axis=-1)


def correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Whether the highest logit is the label: (B,) booleans."""
    return logits.argmax(axis=-1) == labels
