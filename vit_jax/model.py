"""The Vision Transformer."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import InputError, ViTConfig, ViTOutput
from vit_config.images.patches import Patches
from vit_config.inputs import check_batch, check_image, check_patches
from vit_config.numerics.tables import fixed_position_table
from vit_config.pretrained import Pretrained
from vit_jax.block import make_block
from vit_jax.drop import Dropout, PatchDropout
from vit_jax.features import Features
from vit_jax.heads import set_kernel
from vit_jax.init import initialise
from vit_jax.linear import Linear, add_broadcast
from vit_jax.norm import make_norm
from vit_jax.patch import make_patch_embed
from vit_jax.pooling import AttentionPool, SoftPool, make_pool
from vit_jax.positions import Places, fit_positions, places_of
from vit_jax.rope import Rotation, make_rope, make_rotation


class ViT(Features, Pretrained, nnx.Module):
    """A Vision Transformer (arXiv 2010.11929) with timm's parameter names.

    The model computes in the type of its parameters. Randomness is an argument of the call, not a
    mode: a call with `rngs` is a training pass, with dropout; a call without is deterministic.
    """

    run_all: Callable[..., jax.Array] | None = None
    """Runs all blocks at once, as `vit_jax.scanned` does; used unless the outputs between blocks are
    wanted."""

    def __init__(self, cfg: ViTConfig, *, kernel: str = "auto", rngs: nnx.Rngs):
        """Build a model with initial values.

        Args:
            kernel: how attention is computed, one of `vit_jax.kernels.KERNELS`; see `set_kernel`.
            rngs: a stream ``params``.

        Raises:
            InputError: there is no such kernel.
        """
        D = cfg.hidden_size
        self.cfg = cfg
        self.patch_embed = make_patch_embed(cfg, rngs=rngs)
        self.cls_token = nnx.Param(jnp.zeros((1, 1, D))) if cfg.class_token else None
        self.dist_token = nnx.Param(jnp.zeros((1, 1, D))) if cfg.distill_token else None
        self.reg_token = (
            nnx.Param(jnp.zeros((1, cfg.register_tokens, D))) if cfg.register_tokens else None
        )
        for name in ("pos_embed", "pos_embed_y", "pos_embed_x"):
            shape = cfg.table_shapes.get(name)
            setattr(self, name, nnx.Param(jnp.zeros(shape)) if shape else None)
        self.pos_drop = Dropout(cfg.dropout_embed)
        self.patch_drop = PatchDropout(cfg.dropout_patch, cfg.num_prefix_tokens)
        self.rope = make_rope(cfg, rngs=rngs)
        self.norm_pre = make_norm(cfg, D, rngs=rngs) if cfg.pre_norm else None
        self.blocks = nnx.List([make_block(cfg, i, rngs=rngs) for i in range(cfg.depth)])
        affine = cfg.final_norm_affine
        self.norm = make_norm(cfg, D, affine=affine, rngs=rngs) if cfg.final_norm == "pre_pool" else None
        self.pool = make_pool(cfg)
        self.attn_pool = AttentionPool(cfg, rngs=rngs) if cfg.pool == "map" else None
        after = cfg.final_norm == "post_pool"
        self.fc_norm = make_norm(cfg, D, affine=affine, rngs=rngs) if after else None
        hidden = cfg.head_hidden
        self.pre_logits = Linear(cfg.head_inputs, hidden, rngs=rngs) if hidden else None
        self.add_head(cfg, rngs=rngs)
        initialise(self, cfg, rngs=rngs)
        set_kernel(self, kernel)

    def add_head(self, cfg: ViTConfig, *, rngs: nnx.Rngs) -> None:
        """Create the classifier head, and the distillation token's head."""
        C, bias = cfg.num_classes, cfg.head_bias
        inputs = cfg.head_hidden or cfg.head_inputs
        self.head_drop = Dropout(cfg.dropout_head)
        self.head = Linear(inputs, C, use_bias=bias, rngs=rngs) if C else None
        distilled = C and cfg.distill_token
        self.head_dist = Linear(cfg.hidden_size, C, use_bias=bias, rngs=rngs) if distilled else None

    def position_table(self, grid: tuple[int, int] | Places, x: jax.Array) -> jax.Array | None:
        """Return the position table (1, rows, D) for images of one grid, prefix rows first; for images
        of a grid each (B, rows, D)."""
        if tables := {name: getattr(self, name)[...] for name in self.cfg.table_shapes}:
            return fit_positions(tables, self.cfg, grid)
        if isinstance(grid, Places):
            return None
        table = fixed_position_table(self.cfg, grid)
        return None if table is None else jnp.asarray(table, x.dtype)[None]

    def add_positions(
        self, prefix: jax.Array, x: jax.Array, grid: tuple[int, int] | Places
    ) -> jax.Array:
        """Add positions to prefix (B, P, D) and patch tokens (B, N, D), and join them: (B, P + N, D)."""
        table = self.position_table(grid, x)
        if table is not None:
            rows = self.cfg.num_prefix_rows
            x = add_broadcast(x, table[:, rows:])
            placed = add_broadcast(prefix[:, :rows], table[:, :rows])
            prefix = jnp.concatenate([placed, prefix[:, rows:]], axis=1)
        return jnp.concatenate([prefix, x], axis=1)  # (B, P + N, D)

    def embed(
        self, images: jax.Array | Patches, *, rngs: nnx.Rngs | None = None
    ) -> tuple[jax.Array, list[Rotation | None], jax.Array | None]:
        """Map images (B, H, W, C) or patches to the first block's input (B, P + N, D), each block's
        rotation, and which tokens are no padding (B, P + N), None if all."""
        x = self.patch_embed(images)  # (B, N, D)
        B, _, D = x.shape
        padded = isinstance(images, Patches)
        grid = self.grid_of(images)
        tokens = (self.cls_token, self.dist_token, self.reg_token)
        values = [t[...] for t in tokens if t is not None]  # (1, n, D) each
        prefix = [add_broadcast(jnp.zeros((B, t.shape[1], D), t.dtype), t) for t in values]
        prefix = jnp.concatenate([jnp.zeros((B, 0, D), x.dtype), *prefix], axis=1)  # (B, P, D)
        x = self.pos_drop(self.add_positions(prefix, x, grid), rngs=rngs)
        x, kept_patches = self.patch_drop(x, rngs=rngs)  # (B, n) or None
        x = x if self.norm_pre is None else self.norm_pre(x)
        valid = self.valid_tokens(images.valid, kept_patches) if padded else None
        if self.rope is None:
            return x, [None] * self.cfg.depth, valid
        angles = self.rope(grid, x)  # (depth or 1, 1 or h, N, d/2)
        rotations = [make_rotation(block_angles, kept_patches) for block_angles in angles]
        return x, [*rotations * (self.cfg.depth // len(rotations))], valid

    def valid_tokens(self, valid: jax.Array, patches: jax.Array | None = None) -> jax.Array:
        """Say which tokens (B, P + N) are no padding: prefix tokens, and the valid patches (B, N), of
        which `patches` (B, n) are left if not None."""
        valid = valid if patches is None else jnp.take_along_axis(valid, patches, axis=1)
        return jnp.pad(valid, ((0, 0), (self.cfg.num_prefix_tokens, 0)), constant_values=True)

    def run_blocks(
        self,
        images: jax.Array | Patches,
        *,
        each: bool = True,
        first: int | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> Iterator[tuple[jax.Array, jax.Array | None, jax.Array | None]]:
        """Yield the tokens (B, P + N, D) after each block, with its attention weights or None, and which
        tokens are no padding (B, P + N), None if all.

        Args:
            images: (B, H, W, C), normalised, or patches.
            each: false if only the last block's tokens are needed.
            first: how many of the last block's tokens to compute; None is all.

        Raises:
            InputError: an image the model was not built for.
        """
        if isinstance(images, Patches):
            check_patches(self.cfg, *(part.shape for part in images))
        else:
            check_batch(images, "B, H, W, C")
            check_image(self.cfg, *images.shape[1:])
        x, rotations, valid = self.embed(images, rngs=rngs)
        padding = {} if valid is None else {"valid": valid}
        if self.run_all is not None and not each:
            yield self.run_all(x, rotations, rngs, **padding), None, valid
            return
        wanted = [None] * (self.cfg.depth - 1) + [first]
        for block, rotation, first in zip(self.blocks, rotations, wanted, strict=True):
            x, weights = block(x, rotation=rotation, first=first, rngs=rngs, **padding)
            yield x, weights, valid

    def normalise(self, x: jax.Array) -> jax.Array:
        """Apply the final norm to all tokens (B, P + N, D), if the schema has one before pooling."""
        return x if self.norm is None else self.norm(x)

    def grid_of(self, images: jax.Array | Patches) -> tuple[int, int] | Places:
        """Return the grid of images, or the places of patches."""
        return places_of(images) if isinstance(images, Patches) else self.cfg.grid_of(*images.shape[1:3])

    def pool_tokens(
        self,
        x: jax.Array,
        valid: jax.Array | None = None,
        grid: tuple[int, int] | Places | None = None,
    ) -> jax.Array:
        """Pool tokens (B, P + N, D), of which `valid` (B, P + N) are no padding, to the input, (B, D) or
        (B, 2 D), of the head or its tanh layer; or to (B, T, D), squares of the grid, by default that of
        the schema."""
        if isinstance(self.pool, SoftPool):
            return self.pool(x, valid=valid, grid=self.cfg.grid if grid is None else grid)
        padding = {} if valid is None else {"valid": valid}
        if self.attn_pool is None:
            pooled = self.pool(x, **padding)
        else:
            pooled = self.pool(self.attn_pool(x, **padding))
        return pooled if self.fc_norm is None else self.fc_norm(pooled)

    def classify(self, x: jax.Array, pooled: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Compute each head's logits: (1, B, num_classes), or with a distillation head (2, B,
        num_classes).

        Args:
            x: all tokens (B, P + N, D) after the final norm, if any.
            pooled: the input of a single head, or of the tanh layer before it: (B, D) or (B, 2 D).
        """
        if self.pre_logits is not None:
            pooled = jnp.tanh(self.pre_logits(pooled))  # (B, head_hidden)
        if self.head is None:
            return pooled[None]
        if self.head_dist is None:
            return self.head(self.head_drop(pooled, rngs=rngs))[None]
        by_class = self.head(self.head_drop(x[:, 0], rngs=rngs))
        return jnp.stack([by_class, self.head_dist(self.head_drop(x[:, 1], rngs=rngs))])

    def combine(self, by_head: jax.Array) -> jax.Array:
        """Combine the heads' logits (heads, B, num_classes) into the model's (B, num_classes)."""
        logits = by_head.mean(axis=0)
        if self.cfg.head_activation == "softmax":
            wide = jnp.promote_types(logits.dtype, jnp.float32)
            logits = jax.nn.softmax(logits.astype(wide), axis=-1).astype(logits.dtype)
        return logits

    def __call__(
        self,
        images: jax.Array | Patches,
        *,
        return_tokens: bool = True,
        return_attention: bool = False,
        return_blocks: bool = False,
        rngs: nnx.Rngs | None = None,
    ) -> ViTOutput:
        """Classify images.

        Args:
            images: (B, H, W, C), normalised; or, with dynamic_image_size, patches of images of any
                sizes, whose padding changes nothing: what is returned for it has no meaning.
            return_tokens: false if only the logits are needed: the last block then computes no more
                tokens than the head reads.
            return_attention: also return every block's attention weights.
            return_blocks: also return every block's output.

        Raises:
            InputError: an image the model was not built for, or attention weights asked of a fast
                kernel.
        """
        x, valid, attention, blocks = images, None, [], []
        each = return_attention or return_blocks
        first = None if return_tokens or each else self.cfg.head_tokens
        for block in self.run_blocks(images, each=each, first=first, rngs=rngs):
            x, weights, valid = block
            if return_attention:
                attention.append(weights)
            if return_blocks:
                blocks.append(x)
        if attention and attention[0] is None:
            raise InputError(
                "return_attention = True needs the weights that the model's kernel never forms; call"
                ' set_kernel(model, "auto")'
            )
        assert not isinstance(x, Patches)  # there is at least one block
        x = self.normalise(x)
        pooled = self.pool_tokens(x, valid, self.grid_of(images))  # (B, D)
        by_head = self.classify(x, pooled, rngs=rngs)  # (heads, B, num_classes)
        P = self.cfg.num_prefix_tokens
        return ViTOutput(
            logits=self.combine(by_head),
            pooled=pooled,
            prefix_tokens=x[:, :P] if return_tokens else None,
            patch_tokens=x[:, P:] if return_tokens else None,
            head_logits=by_head if len(by_head) > 1 else None,
            attention=tuple(attention) if return_attention else None,
            blocks=tuple(blocks) if return_blocks else None,
        )

    def logits(self, images: jax.Array | Patches, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Return timm's output: logits (B, num_classes), or where there is no head its input, which with
        `pool = "soft"` is (B, T, D).

        Args:
            images: (B, H, W, C), normalised, or patches.

        Raises:
            InputError: images that the model was not built for.
        """
        return self(images, return_tokens=False, rngs=rngs).logits
