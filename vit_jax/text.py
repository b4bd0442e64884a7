"""The text tower of CLIP and SigLIP, of the image tower's blocks."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import TextConfig, ViTConfig
from vit_config.output import TextOutput
from vit_jax.attention import Attention
from vit_jax.block import Block
from vit_jax.heads import set_kernel
from vit_jax.init import initialise
from vit_jax.linear import Linear, add_broadcast
from vit_jax.norm import make_norm


class CausalAttention(Attention):
    """Attention in which no token sees a later one (arXiv 1706.03762, section 3.2.3)."""

    def mix(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        bias: jax.Array | None,
        rngs: nnx.Rngs | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Mix the values of each token and those before it; `bias` is not used."""
        later = jnp.full((1, q.shape[1], k.shape[1]), -jnp.inf, q.dtype)
        return super().mix(q, k, v, bias=jnp.triu(later, 1), rngs=rngs)


class CausalBlock(Block):
    """A block of causal attention."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        super().__init__(cfg, index, rngs=rngs)
        self.attn = CausalAttention(cfg, index, rngs=rngs)


class TextPool(nnx.Module):
    """Pooling to the one token that stands for the text."""

    def __init__(self, cfg: TextConfig):
        self.kind, self.eos_id = cfg.pool, cfg.eos_id

    def __call__(self, x: jax.Array, ids: jax.Array) -> jax.Array:
        """Pool tokens (B, N, D) of the ids (B, N) to (B, D)."""
        if self.kind in ("first", "last"):
            return x[:, 0 if self.kind == "first" else -1]
        marks = ids if self.kind == "largest" else (ids == self.eos_id).astype(jnp.int32)
        place = marks.argmax(axis=1)  # the first of equal ones
        return jnp.take_along_axis(x, place[:, None, None], axis=1)[:, 0]


class TextTower(nnx.Module):
    """The text tower of a CLIP (arXiv 2103.00020) or a SigLIP (arXiv 2303.15343).

    It computes in the type of its parameters.
    """

    def __init__(self, cfg: TextConfig, *, kernel: str = "auto", rngs: nnx.Rngs):
        """Build a tower with initial values.

        Args:
            kernel: how attention is computed, one of `vit_jax.kernels.KERNELS`.
            rngs: a stream ``params``.

        Raises:
            InputError: there is no such kernel.
        """
        D, E, encoder = cfg.hidden_size, cfg.projection_dim, cfg.encoder
        self.cfg = cfg
        self.token_embed = nnx.Param(jnp.zeros((cfg.vocab_size, D)))
        self.pos_embed = nnx.Param(jnp.zeros((cfg.context_length, D)))
        kind = CausalBlock if cfg.causal else Block
        self.blocks = nnx.List([kind(encoder, i, rngs=rngs) for i in range(cfg.depth)])
        self.norm = make_norm(encoder, D, rngs=rngs)
        self.pool = TextPool(cfg)
        self.head = Linear(D, E, use_bias=cfg.projection_bias, rngs=rngs) if E else None
        self.logit_scale = nnx.Param(jnp.zeros(())) if cfg.logit_scale else None
        self.logit_bias = nnx.Param(jnp.zeros(())) if cfg.logit_bias else None
        initialise(self, encoder, rngs=rngs)
        set_kernel(self, kernel)

    def __call__(self, ids: jax.Array) -> TextOutput:
        """Embed texts.

        Args:
            ids: (B, N) integers below vocab_size, which `TextConfig.check_ids` checks; N is at most
                context_length.

        Raises:
            InputError: ids of another shape, or too many to a text.
        """
        self.cfg.check_shape(ids.shape)
        x = self.token_embed[...][ids]  # (B, N, D)
        x = add_broadcast(x, self.pos_embed[: ids.shape[1]])
        for block in self.blocks:
            x, _ = block(x)
        x = self.norm(x)
        pooled = self.pool(x, ids)  # (B, D)
        embeddings = pooled if self.head is None else self.head(pooled)
        return TextOutput(embeddings, pooled, x)

    def compare(self, images: jax.Array, texts: jax.Array) -> jax.Array:
        """Compare embeddings of images (B, E) and texts (T, E), in at least float32.

        Returns:
            (B, T) logits: cosines, times exp(logit_scale), plus logit_bias, as far as there are any.
        """
        wide = jnp.promote_types(texts.dtype, jnp.float32)
        images, texts = (
            x / jnp.sqrt((x * x).sum(axis=-1, keepdims=True))
            for x in (images.astype(wide), texts.astype(wide))
        )
        logits = images @ texts.T
        if self.logit_scale is not None:
            logits = logits * jnp.exp(self.logit_scale[...].astype(wide))
        return logits if self.logit_bias is None else logits + self.logit_bias[...].astype(wide)
