"""The training loss and the count of right answers."""

import torch


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, *, smoothing: float = 0.0) -> torch.Tensor:
    """Softmax cross entropy of each image, in at least float32.

    Args:
        logits: (B, classes).
        labels: (B,) integers.
        smoothing: share of the target spread evenly over all classes (arXiv 1512.00567, section 7).

    Returns:
        (B,).
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(logits.to(wide), dim=-1)  # (B, classes)
    right = torch.take_along_dim(log_p, labels[:, None], dim=-1)[:, 0]  # (B,)
    return -(1.0 - smoothing) * right - smoothing * log_p.mean(dim=-1)


def correct(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether the highest logit is the label: (B,) booleans."""
    return logits.argmax(dim=-1) == labels
