"""The training loss and the count of right answers."""

import jax
import jax.numpy as jnp


def cross_entropy(
    logits: jax.Array, labels: jax.Array, *, kind: str = "softmax", smoothing: float = 0.0
) -> jax.Array:
    """Cross entropy of each image, in at least float32.

    Args:
        logits: (B, classes).
        labels: (B,) integers.
        kind: of a softmax over the classes; or ``sigmoid``, of one for each class, summed over them
            (arXiv 2006.07159, section 5); or ``sigmoid_mean``, averaged.
        smoothing: share of the target spread evenly over all classes (arXiv 1512.00567, section 7).

    Returns:
        (B,).
    """
    wide = jnp.promote_types(logits.dtype, jnp.float32)
    logits = logits.astype(wide)
    if kind == "softmax":
        log_p = jax.nn.log_softmax(logits, axis=-1)  # (B, classes)
        of_label = jnp.take_along_axis(log_p, labels[:, None], axis=-1)[:, 0]
        return -(1.0 - smoothing) * of_label - smoothing * log_p.mean(axis=-1)
    classes = logits.shape[-1]
    target = jax.nn.one_hot(labels, classes, dtype=wide) * (1.0 - smoothing) + smoothing / classes
    yes, no = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)  # (B, classes) each
    loss = -(target * yes + (1.0 - target) * no)
    return loss.mean(axis=-1) if kind == "sigmoid_mean" else loss.sum(axis=-1)


def correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Whether the highest logit is the label: (B,) booleans."""
    return logits.argmax(axis=-1) == labels
