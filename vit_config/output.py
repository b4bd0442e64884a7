"""What a forward pass returns, the same names in both twins."""

from __future__ import annotations

from typing import Any, NamedTuple


class ViTOutput(NamedTuple):
    """Arrays (JAX) or tensors (PyTorch); a pytree, so it passes through `jax.jit`."""

    logits: Any
    """(B, num_classes), or the pooled features (B, D) of a model without a head."""
    pooled: Any
    """(B, D): what the head sees."""
    prefix_tokens: Any
    """(B, P, D): class token and registers after the last block and the final norm, if any."""
    patch_tokens: Any
    """(B, N, D): patch features after the last block and the final norm, if any; row-major."""
    attention: tuple[Any, ...] | None = None
    """On request: one (B, h, P + N, P + N) array of attention weights per block."""
    blocks: tuple[Any, ...] | None = None
    """On request: the output (B, P + N, D) of each block."""
