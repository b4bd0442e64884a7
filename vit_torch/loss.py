"""The training loss and the count of right answers."""

import torch


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
        return -(1.0 - smoothing) * _of(labels, log_p) - smoothing * log_p.mean(dim=-1)
    # t log s(x) + (1 - t) log(1 - s(x)) with t = 1 - smoothing on the label and smoothing / classes all
    # over
    no = -torch.nn.functional.logsigmoid(-logits)  # (B, classes)
    loss = no.sum(dim=-1) - (1.0 - smoothing) * _of(labels, logits) - smoothing * logits.mean(dim=-1)
    return loss / logits.shape[-1] if kind == "sigmoid_mean" else loss


def _of(labels: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The value of each label: (B, classes) to (B,)."""
    return torch.take_along_dim(values, labels[:, None], dim=-1)[:, 0]


def correct(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Whether the highest logit is the label: (B,) booleans."""
    return logits.argmax(dim=-1) == labels
