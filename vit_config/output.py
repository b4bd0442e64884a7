"""The output of a forward pass, with the same names in both twins."""

from __future__ import annotations

from typing import Any, NamedTuple


class ViTOutput(NamedTuple):
    """A model's output: arrays (JAX) or tensors (PyTorch); a pytree, so it passes through `jax.jit`."""

    logits: Any
    """(B, num_classes); without a head its input: the pooled features (B, D) or (B, T, D), or the tanh
    layer's output (B, head_hidden)."""
    pooled: Any
    """(B, D): the head's input; 2 D where class token and mean are joined; (B, T, D) where squares of
    patches are pooled (`pool = "soft"`), row by row."""
    prefix_tokens: Any | None
    """(B, P, D): class, distillation and register tokens, after the final norm if there is one. Like
    `patch_tokens`, None from a call with ``return_tokens=False``."""
    patch_tokens: Any | None
    """(B, N, D): patch features after the last block and the final norm, if any; row-major."""
    head_logits: Any | None = None
    """The logits of the class head and of the distillation token's own head, (2, B, num_classes),
    where there are both."""
    attention: tuple[Any, ...] | None = None
    """On request: one (B, h, P + N, P + N) array of attention weights per block; in a block with several
    attentions side by side, the heads of all."""
    blocks: tuple[Any, ...] | None = None
    """On request: the output (B, P + N, D) of each block."""


class TextOutput(NamedTuple):
    """A text tower's output: arrays (JAX) or tensors (PyTorch)."""

    embeddings: Any
    """(B, E): the pooled tokens, projected into the space that texts share with images; (B, D) without a
    projection."""
    pooled: Any
    """(B, D): one token of each text."""
    tokens: Any
    """(B, N, D): all tokens after the final norm."""
