"""The Vision Transformer."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import InputError, ViTConfig, ViTOutput
from vit_config.tables import fixed_position_table
from vit_jax.block import Block
from vit_jax.drop import Dropout
from vit_jax.init import initialise
from vit_jax.norm import make_norm
from vit_jax.patch import make_patch_embed
from vit_jax.pooling import Pool


class ViT(nnx.Module):
    """A Vision Transformer (arXiv 2010.11929) with timm's parameter names.

    It computes in the type of its parameters. Randomness is an argument of the call, not a mode: with
    `rngs` the call drops and is a training pass, without it is deterministic.
    """

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        D = cfg.hidden_size
        self.cfg = cfg
        self.patch_embed = make_patch_embed(cfg, rngs=rngs)
        self.cls_token = nnx.Param(jnp.zeros((1, 1, D))) if cfg.class_token else None
        self.reg_token = (
            nnx.Param(jnp.zeros((1, cfg.register_tokens, D))) if cfg.register_tokens else None
        )
        self.pos_embed = (
            nnx.Param(jnp.zeros((1, cfg.num_prefix_rows + cfg.num_patches, D)))
            if cfg.pos_embed == "learned"
            else None
        )
        self.pos_drop = Dropout(cfg.dropout_embed)
        self.norm_pre = make_norm(cfg, D, rngs=rngs) if cfg.pre_norm else None
        self.blocks = nnx.List([Block(cfg, i, rngs=rngs) for i in range(cfg.depth)])
        self.norm = make_norm(cfg, D, rngs=rngs) if cfg.final_norm == "pre_pool" else None
        self.pool = Pool(cfg)
        self.fc_norm = make_norm(cfg, D, rngs=rngs) if cfg.final_norm == "post_pool" else None
        self.head = nnx.Linear(D, cfg.num_classes, rngs=rngs) if cfg.num_classes else None
        initialise(self, cfg, rngs=rngs)

    def position_table(self, x: jax.Array) -> jax.Array | None:
        """The position table (1, rows, D), prefix rows first, in the type of `x`."""
        if self.pos_embed is not None:
            return self.pos_embed[...]
        table = fixed_position_table(self.cfg)
        return None if table is None else jnp.asarray(table, x.dtype)[None]

    def add_positions(self, prefix: jax.Array, x: jax.Array) -> jax.Array:
        """Join prefix tokens (B, P, D) and patch tokens (B, N, D), positions added: (B, P + N, D)."""
        table = self.position_table(x)
        if table is not None:
            rows, N = self.cfg.num_prefix_rows, x.shape[1]
            x = x + table[:, rows : rows + N]  # a smaller image takes the leading rows
            placed = prefix[:, :rows] + table[:, :rows]
            prefix = jnp.concatenate([placed, prefix[:, rows:]], axis=1)
        return jnp.concatenate([prefix, x], axis=1)  # (B, P + N, D)

    def embed(self, images: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Images (B, H, W, C) to the first block's input (B, P + N, D)."""
        x = self.patch_embed(images)  # (B, N, D)
        B, _, D = x.shape
        tokens = [t[...] for t in (self.cls_token, self.reg_token) if t is not None]
        prefix = [jnp.broadcast_to(t, (B, t.shape[1], D)) for t in tokens]
        prefix = jnp.concatenate([jnp.zeros((B, 0, D), x.dtype), *prefix], axis=1)  # (B, P, D)
        x = self.pos_drop(self.add_positions(prefix, x), rngs=rngs)
        return x if self.norm_pre is None else self.norm_pre(x)

    def __call__(
        self,
        images: jax.Array,
        *,
        kernel: str = "reference",
        return_attention: bool = False,
        return_blocks: bool = False,
        rngs: nnx.Rngs | None = None,
    ) -> ViTOutput:
        """Classify images.

        Args:
            images: (B, H, W, C), normalised.
            kernel: attention kernel, one of `vit_jax.attention.KERNELS`.
            return_attention: also return every block's attention weights.
            return_blocks: also return every block's output.

        Raises:
            InputError: an image the model was not built for, or attention weights asked of a fast
                kernel.
        """
        if images.ndim != 4:
            raise InputError(f"images have shape {images.shape}, expected (B, H, W, C)")
        _, H, W, C = images.shape
        self.cfg.check_image(H, W, C)
        if return_attention and kernel != "reference":
            raise InputError(
                f"return_attention = True needs the weights that kernel = {kernel!r} never forms;"
                ' use kernel = "reference"'
            )
        x = self.embed(images, rngs=rngs)
        attention, blocks = [], []
        for block in self.blocks:
            x, weights = block(x, kernel=kernel, rngs=rngs)
            attention.append(weights)
            blocks.append(x)
        x = x if self.norm is None else self.norm(x)
        pooled = self.pool(x)  # (B, D)
        pooled = pooled if self.fc_norm is None else self.fc_norm(pooled)
        logits = pooled if self.head is None else self.head(pooled)  # (B, num_classes)
        if self.cfg.head_activation == "softmax":
            wide = jnp.promote_types(logits.dtype, jnp.float32)
            logits = jax.nn.softmax(logits.astype(wide), axis=-1).astype(logits.dtype)
        P = self.cfg.num_prefix_tokens
        return ViTOutput(
            logits=logits,
            pooled=pooled,
            prefix_tokens=x[:, :P],
            patch_tokens=x[:, P:],
            attention=tuple(attention) if return_attention else None,
            blocks=tuple(blocks) if return_blocks else None,
        )
