"""The training loss and the count of right answers."""

import torch
from torch.nn import functional as F


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, *, kind: str = "softmax", smoothing: float = 0.0
) -> torch.Tensor:
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
    wide = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(wide)
    if kind == "softmax":
        log_p = torch.log_softmax(logits, dim=-1)  # (B, classes)
        of_label = torch.take_along_dim(log_p, labels[:, None], dim=-1)[:, 0]
        return -(1.0 - smoothing) * of_label - smoothing * log_p.mean(dim=-1)
    classes = logits.shape[-1]
    target = F.one_hot(labels, classes).to(wide) * (1.0 - smoothing) + smoothing / classes
    yes, no = F.logsigmoid(logits), F.logsigmoid(-logits)  # (B, classes) each
    loss = -(target * yes + (1.0 - target) * no)
    return loss.mean(dim=-1) if kind == "sigmoid_mean" else loss.sum(dim=-1)


def correct(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether the highest logit is the label: (B,) booleans."""
    return logits.argmax(dim=-1) == labels
