"""The training loss and the count of right answers."""

from collections.abc import Sequence

import torch
from torch.nn import functional as F


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    kind: str = "softmax",
    smoothing: float = 0.0,
    threshold: float | None = None,
    weights: Sequence[float] = (),
) -> torch.Tensor:
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
    wide = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(wide)
    if kind == "softmax":
        log_p = torch.log_softmax(logits, dim=-1)  # (B, classes)
        log_p = log_p * logits.new_tensor(weights) if weights else log_p
        of_label = _at_labels(log_p, labels)
        return -(1.0 - smoothing) * of_label - smoothing * log_p.mean(dim=-1)
    classes = logits.shape[-1]
    target = _shares(labels, classes).to(wide) * (1.0 - smoothing) + smoothing / classes
    if threshold is not None:
        target = (target > threshold).to(wide)
    yes, no = F.logsigmoid(logits), F.logsigmoid(-logits)  # (B, classes) each
    loss = -(target * yes + (1.0 - target) * no)
    loss = loss * logits.new_tensor(weights) if weights else loss
    return loss.mean(dim=-1) if kind == "sigmoid_mean" else loss.sum(dim=-1)


def _shares(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Return labels as shares of the classes (B, classes): integer labels become one-hot."""
    return labels if labels.ndim > 1 else F.one_hot(labels, classes)


def _at_labels(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Average `values` (B, classes) by the shares of the classes, to (B,)."""
    if labels.ndim > 1:
        return (labels.to(values.dtype) * values).sum(dim=-1)
    return torch.take_along_dim(values, labels[:, None], dim=-1)[:, 0]


def distillation(
    logits: torch.Tensor, teacher: torch.Tensor, *, kind: str, temperature: float
) -> torch.Tensor:
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
        return cross_entropy(logits, teacher.argmax(dim=-1))
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(logits.to(wide) / temperature, dim=-1)
    log_q = torch.log_softmax(teacher.to(wide) / temperature, dim=-1)
    divergence = (torch.exp(log_q) * (log_q - log_p)).sum(dim=-1)
    return divergence * (temperature**2 / logits.shape[-1])


def contrastive(logits: torch.Tensor, *, kind: str = "softmax") -> torch.Tensor:
    """Compute the loss of images and texts of which the i-th belong together.

    Args:
        logits: (B, B), of which rows are images, see `vit_torch.text.TextTower.compare`.
        kind: ``softmax``, the mean of both directions (CLIP, arXiv 2103.00020, figure 3); or
            ``sigmoid``, of each pair by itself, summed over the texts (SigLIP, arXiv 2303.15343,
            algorithm 1).

    Returns:
        A number, the mean over the images.
    """
    pairs = torch.arange(len(logits), device=logits.device)
    loss = cross_entropy(logits, pairs, kind=kind).mean()
    if kind == "softmax":
        loss = (loss + cross_entropy(logits.T, pairs).mean()) / 2
    return loss


def correct(logits: torch.Tensor, labels: torch.Tensor, *, several: bool = False) -> torch.Tensor:
    """Return whether each image is right, (B,) bools: its highest logit is the label, or the class of
    the largest share; of `several` labels, each logit is above 0 where the share is above one half."""
    if several:
        return ((logits > 0) == (labels > 0.5)).all(dim=-1)
    labels = labels if labels.ndim == 1 else labels.argmax(dim=-1)
    return logits.argmax(dim=-1) == labels
