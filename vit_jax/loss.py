"""The training loss and the count of right answers."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp


def cross_entropy(
    logits: jax.Array,
    labels: jax.Array,
    *,
    kind: str = "softmax",
    smoothing: float = 0.0,
    threshold: float | None = None,
    weights: Sequence[float] = (),
) -> jax.Array:
    """Compute the cross entropy of each image, in at least float32.

    Args:
        logits: (B, classes).
        labels: (B,) integers; or (B, classes), the share of each class in a mixed image.
        kind: ``softmax`` over the classes; ``sigmoid``, one for each class, summed over the classes
            (arXiv 2006.07159, section 5); or ``sigmoid_mean``, averaged over them.
        smoothing: share of the target spread evenly over all classes (arXiv 1512.00567, section 7).
        threshold: for the sigmoid losses; targets above it count as 1, the others as 0.
        weights: a factor of each class's part of the loss; none for 1.

    Returns:
        (B,).
    """
    wide = jnp.promote_types(logits.dtype, jnp.float32)
    logits = logits.astype(wide)
    if kind == "softmax":
        log_p = jax.nn.log_softmax(logits, axis=-1)  # (B, classes)
        log_p = log_p * jnp.asarray(weights, wide) if weights else log_p
        of_label = _at_labels(log_p, labels)
        return -(1.0 - smoothing) * of_label - smoothing * log_p.mean(axis=-1)
    classes = logits.shape[-1]
    target = _shares(labels, classes).astype(wide) * (1.0 - smoothing) + smoothing / classes
    if threshold is not None:
        target = (target > threshold).astype(wide)
    yes, no = jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)  # (B, classes) each
    loss = -(target * yes + (1.0 - target) * no)
    loss = loss * jnp.asarray(weights, wide) if weights else loss
    return loss.mean(axis=-1) if kind == "sigmoid_mean" else loss.sum(axis=-1)


def _shares(labels: jax.Array, classes: int) -> jax.Array:
    """Return labels as shares of the classes (B, classes): integer labels become one-hot."""
    return labels if labels.ndim > 1 else jax.nn.one_hot(labels, classes)


def _at_labels(values: jax.Array, labels: jax.Array) -> jax.Array:
    """Average `values` (B, classes) by the shares of the classes, to (B,)."""
    if labels.ndim > 1:
        return (labels.astype(values.dtype) * values).sum(axis=-1)
    return jnp.take_along_axis(values, labels[:, None], axis=-1)[:, 0]


def distillation(logits: jax.Array, teacher: jax.Array, *, kind: str, temperature: float) -> jax.Array:
    """Compute DeiT's loss of the distillation head (arXiv 2012.12877, section 4) for each image.

    ``soft`` is temperature^2 / classes times the divergence from the teacher's distribution: DeiT's code
    divides by the number of logits, where the paper has the batch's.

    Args:
        logits: (B, classes) of the distillation head.
        teacher: (B, classes) logits.
        kind: ``soft``, or ``hard``: the cross entropy with the teacher's highest class.

    Returns:
        (B,).
    """
    if kind == "hard":
        return cross_entropy(logits, teacher.argmax(axis=-1))
    wide = jnp.promote_types(logits.dtype, jnp.float32)
    log_p = jax.nn.log_softmax(logits.astype(wide) / temperature, axis=-1)
    log_q = jax.nn.log_softmax(teacher.astype(wide) / temperature, axis=-1)
    divergence = (jnp.exp(log_q) * (log_q - log_p)).sum(axis=-1)
    return divergence * (temperature**2 / logits.shape[-1])


def contrastive(logits: jax.Array, *, kind: str = "softmax") -> jax.Array:
    """Compute the loss of images and texts of which the i-th belong together.

    Args:
        logits: (B, B), of which rows are images, see `vit_jax.text.TextTower.compare`.
        kind: ``softmax``, the mean of both directions (CLIP, arXiv 2103.00020, figure 3); or
            ``sigmoid``, of each pair by itself, summed over the texts (SigLIP, arXiv 2303.15343,
            algorithm 1).

    Returns:
        A number, the mean over the images.
    """
    pairs = jnp.arange(len(logits))
    loss = cross_entropy(logits, pairs, kind=kind).mean()
    if kind == "softmax":
        loss = (loss + cross_entropy(logits.T, pairs).mean()) / 2
    return loss


def correct(logits: jax.Array, labels: jax.Array, *, several: bool = False) -> jax.Array:
    """Return whether each image is right, (B,) bools: its highest logit is the label, or the class of
    the largest share; of `several` labels, each logit is above 0 where the share is above one half."""
    if several:
        return ((logits > 0) == (labels > 0.5)).all(axis=-1)
    labels = labels if labels.ndim == 1 else labels.argmax(axis=-1)
    return logits.argmax(axis=-1) == labels
