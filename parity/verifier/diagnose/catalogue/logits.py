"""What joins or shapes the logits of attention: biases, masks, keys that heads share."""

from __future__ import annotations

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Option
from parity.verifier.diagnose.segment import Segment

MASKS = (
    Option("every token attends to every token", "all"),
    Option("each token attends to those before it and itself", "causal"),
    Option("the first token is not attended to", "first"),
    Option("each token does not attend to itself", "self"),
)
BIASES = (
    Option("the bias added to the logits", 1),
    Option("no bias added to the logits", 0),
    Option("the bias transposed", "transposed"),
    Option("the bias added twice", 2),
)
SHARING = Aspect(
    "groups",
    "grouped-heads",
    (
        Option("neighbouring heads share keys", "neighbours"),
        Option("heads share keys in turn", "turn"),
    ),
)


def spread(x: np.ndarray, heads: int, how: str) -> np.ndarray | None:
    """(B, kv, T, d) to (B, h, T, d); None if there is nothing to share in turn."""
    if x.shape[1] == heads:
        return x if how == "neighbours" else None
    times = heads // x.shape[1]
    return np.repeat(x, times, axis=1) if how == "neighbours" else np.tile(x, (1, times, 1, 1))


def find_bias(segment: Segment, tokens: int) -> np.ndarray | None:
    """(h, T, T) or (1, h, T, T), from a child, the arguments or the parameters."""
    for x in (*segment.before.values(), *segment.parameters.values()):
        if x.shape[-2:] == (tokens, tokens) and (x.ndim == 3 or (x.ndim == 4 and len(x) == 1)):
            return x
    return None


def biased(bias: np.ndarray, how: str | int) -> np.ndarray:
    """The bias as it is added: multiplied by a number, or transposed."""
    return bias.swapaxes(-1, -2) if isinstance(how, str) else bias * how


def mask_of(how: str, tokens: int) -> np.ndarray:
    """(T, T), 0 where a query sees a key and -inf where it does not."""
    mask = np.zeros((tokens, tokens))
    if how == "causal":
        mask[np.triu_indices(tokens, 1)] = -np.inf
    elif how == "first":
        mask[:, 0] = -np.inf
    elif how == "self":
        np.fill_diagonal(mask, -np.inf)
    return mask
