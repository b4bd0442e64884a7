"""The Vision Transformer."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

from vit_config import InputError, ViTConfig, ViTOutput
from vit_config.images.patches import Patches
from vit_config.inputs import check_batch, check_image, check_patches
from vit_config.numerics.tables import fixed_position_table
from vit_config.pretrained import Pretrained
from vit_torch.block import make_block
from vit_torch.drop import Dropout, PatchDropout
from vit_torch.features import Features
from vit_torch.heads import set_kernel
from vit_torch.init import initialise
from vit_torch.kernels import weights_formed
from vit_torch.norm import make_norm
from vit_torch.patch import make_patch_embed
from vit_torch.pooling import AttentionPool, SoftPool, make_pool
from vit_torch.positions import Places, fit_positions, places_of
from vit_torch.rope import Rotation, make_rope, make_rotation


class ViT(Features, Pretrained, nn.Module):
    """A Vision Transformer (arXiv 2010.11929) with timm's parameter names.

    The model computes in the type of its parameters. Randomness is torch's mode: `train()` drops,
    `eval()` is deterministic.
    """

    def __init__(self, cfg: ViTConfig, *, kernel: str = "auto"):
        """Build a model with initial values.

        Args:
            kernel: how attention is computed, one of `vit_torch.kernels.KERNELS`; see `set_kernel`.

        Raises:
            InputError: there is no such kernel.
        """
        super().__init__()
        D = cfg.hidden_size
        self.cfg = cfg
        self.patch_embed = make_patch_embed(cfg)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D)) if cfg.class_token else None
        self.dist_token = nn.Parameter(torch.zeros(1, 1, D)) if cfg.distill_token else None
        self.reg_token = (
            nn.Parameter(torch.zeros(1, cfg.register_tokens, D)) if cfg.register_tokens else None
        )
        for name in ("pos_embed", "pos_embed_y", "pos_embed_x"):
            shape = cfg.table_shapes.get(name)
            setattr(self, name, nn.Parameter(torch.zeros(shape)) if shape else None)
        self.pos_drop = Dropout(cfg.dropout_embed)
        self.patch_drop = PatchDropout(cfg.dropout_patch, cfg.num_prefix_tokens)
        self.rope = make_rope(cfg)
        self.norm_pre = make_norm(cfg, D) if cfg.pre_norm else None
        self.blocks = nn.ModuleList([make_block(cfg, i) for i in range(cfg.depth)])
        affine = cfg.final_norm_affine
        self.norm = make_norm(cfg, D, affine=affine) if cfg.final_norm == "pre_pool" else None
        self.pool = make_pool(cfg)
        self.attn_pool = AttentionPool(cfg) if cfg.pool == "map" else None
        after = cfg.final_norm == "post_pool"
        self.fc_norm = make_norm(cfg, D, affine=affine) if after else None
        hidden = cfg.head_hidden
        self.pre_logits = nn.Linear(cfg.head_inputs, hidden) if hidden else None
        self.add_head(cfg)
        initialise(self, cfg)
        set_kernel(self, kernel)

    def add_head(self, cfg: ViTConfig) -> None:
        """Create the classifier head, and the distillation token's head."""
        C, bias = cfg.num_classes, cfg.head_bias
        inputs = cfg.head_hidden or cfg.head_inputs
        self.head_drop = Dropout(cfg.dropout_head)
        self.head = nn.Linear(inputs, C, bias=bias) if C else None
        distilled = C and cfg.distill_token
        self.head_dist = nn.Linear(cfg.hidden_size, C, bias=bias) if distilled else None

    def position_table(self, grid: tuple[int, int] | Places, x: torch.Tensor) -> torch.Tensor | None:
        """Return the position table (1, rows, D) for images of one grid, prefix rows first; for images
        of a grid each (B, rows, D)."""
        if tables := {name: getattr(self, name) for name in self.cfg.table_shapes}:
            return fit_positions(tables, self.cfg, grid)
        if isinstance(grid, Places):
            return None
        table = fixed_position_table(self.cfg, grid)
        return None if table is None else torch.tensor(table, dtype=x.dtype, device=x.device)[None]

    def add_positions(
        self, prefix: torch.Tensor, x: torch.Tensor, grid: tuple[int, int] | Places
    ) -> torch.Tensor:
        """Add positions to prefix (B, P, D) and patch tokens (B, N, D), and join them: (B, P + N, D)."""
        table = self.position_table(grid, x)
        if table is not None:
            rows = self.cfg.num_prefix_rows
            x = x + table[:, rows:]
            placed = prefix[:, :rows] + table[:, :rows]
            prefix = torch.cat([placed, prefix[:, rows:]], dim=1)
        return torch.cat([prefix, x], dim=1)  # (B, P + N, D)

    def embed(
        self, images: torch.Tensor | Patches
    ) -> tuple[torch.Tensor, list[Rotation | None], torch.Tensor | None]:
        """Map images (B, C, H, W) or patches to the first block's input (B, P + N, D), each block's
        rotation, and which tokens are no padding (B, P + N), None if all."""
        x = self.patch_embed(images)  # (B, N, D)
        B, _, D = x.shape
        padded = isinstance(images, Patches)
        grid = self.grid_of(images)
        tokens = (self.cls_token, self.dist_token, self.reg_token)
        prefix = [t.expand(B, t.shape[1], D) for t in tokens if t is not None]
        prefix = torch.cat([x.new_zeros(B, 0, D), *prefix], dim=1)  # (B, P, D)
        x = self.pos_drop(self.add_positions(prefix, x, grid))
        x, kept_patches = self.patch_drop(x)  # (B, n) or None
        x = x if self.norm_pre is None else self.norm_pre(x)
        valid = self.valid_tokens(images.valid, kept_patches) if padded else None
        if self.rope is None:
            return x, [None] * self.cfg.depth, valid
        angles = self.rope(grid, x)  # (depth or 1, 1 or h, N, d/2)
        rotations = [make_rotation(block_angles, kept_patches) for block_angles in angles]
        return x, [*rotations * (self.cfg.depth // len(rotations))], valid

    def valid_tokens(self, valid: torch.Tensor, patches: torch.Tensor | None = None) -> torch.Tensor:
        """Say which tokens (B, P + N) are no padding: prefix tokens, and the valid patches (B, N), of
        which `patches` (B, n) are left if not None."""
        valid = valid if patches is None else torch.take_along_dim(valid, patches, dim=1)
        return F.pad(valid, (self.cfg.num_prefix_tokens, 0), value=True)

    def run_blocks(
        self, images: torch.Tensor | Patches, *, first: int | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]]:
        """Yield the tokens (B, P + N, D) after each block, with its attention weights or None, and which
        tokens are no padding (B, P + N), None if all.

        Args:
            images: (B, C, H, W), normalised, or patches.
            first: how many of the last block's tokens to compute; None is all.

        Raises:
            InputError: an image the model was not built for.
        """
        if isinstance(images, Patches):
            check_patches(self.cfg, *(tuple(part.shape) for part in images))
        else:
            check_batch(images, "B, C, H, W")
            _, C, H, W = images.shape
            check_image(self.cfg, H, W, C)
        x, rotations, valid = self.embed(images)
        padding = {} if valid is None else {"valid": valid}
        wanted = [None] * (self.cfg.depth - 1) + [first]
        for block, rotation, first in zip(self.blocks, rotations, wanted, strict=True):
            x, weights = block(x, rotation=rotation, first=first, **padding)
            yield x, weights, valid

    def normalise(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the final norm to all tokens (B, P + N, D), if the schema has one before pooling."""
        return x if self.norm is None else self.norm(x)

    def grid_of(self, images: torch.Tensor | Patches) -> tuple[int, int] | Places:
        """Return the grid of images, or the places of patches."""
        return places_of(images) if isinstance(images, Patches) else self.cfg.grid_of(*images.shape[2:])

    def pool_tokens(
        self,
        x: torch.Tensor,
        valid: torch.Tensor | None = None,
        grid: tuple[int, int] | Places | None = None,
    ) -> torch.Tensor:
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

    def classify(self, x: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Compute each head's logits: (1, B, num_classes), or with a distillation head (2, B,
        num_classes).

        Args:
            x: all tokens (B, P + N, D) after the final norm, if any.
            pooled: the input of a single head, or of the tanh layer before it: (B, D) or (B, 2 D).
        """
        if self.pre_logits is not None:
            pooled = torch.tanh(self.pre_logits(pooled))  # (B, head_hidden)
        if self.head is None:
            return pooled[None]
        if self.head_dist is None:
            return self.head(self.head_drop(pooled))[None]
        by_class = self.head(self.head_drop(x[:, 0]))
        return torch.stack([by_class, self.head_dist(self.head_drop(x[:, 1]))])

    def combine(self, by_head: torch.Tensor) -> torch.Tensor:
        """Combine the heads' logits (heads, B, num_classes) into the model's (B, num_classes)."""
        logits = by_head.mean(dim=0)
        if self.cfg.head_activation == "softmax":
            wide = torch.promote_types(logits.dtype, torch.float32)
            logits = torch.softmax(logits.to(wide), dim=-1).to(logits.dtype)
        return logits

    def forward(
        self,
        images: torch.Tensor | Patches,
        *,
        return_tokens: bool = True,
        return_attention: bool = False,
        return_blocks: bool = False,
    ) -> ViTOutput:
        """Classify images.

        Args:
            images: (B, C, H, W), normalised; or, with dynamic_image_size, patches of images of any
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
        with weights_formed(return_attention):
            for block in self.run_blocks(images, first=first):
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
        by_head = self.classify(x, pooled)  # (heads, B, num_classes)
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

    def logits(self, images: torch.Tensor | Patches) -> torch.Tensor:
        """Return timm's output: logits (B, num_classes), or where there is no head its input, which with
        `pool = "soft"` is (B, T, D).

        Args:
            images: (B, C, H, W), normalised, or patches.

        Raises:
            InputError: images that the model was not built for.
        """
        return self(images, return_tokens=False).logits
