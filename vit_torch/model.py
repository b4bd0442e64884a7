"""The Vision Transformer."""

import torch
from torch import nn

from vit_config import InputError, ViTConfig, ViTOutput
from vit_config.tables import fixed_position_table
from vit_torch.block import Block
from vit_torch.drop import Dropout
from vit_torch.init import initialise
from vit_torch.norm import make_norm
from vit_torch.patch import make_patch_embed
from vit_torch.pooling import Pool


class ViT(nn.Module):
    """A Vision Transformer (arXiv 2010.11929) with timm's parameter names.

    It computes in the type of its parameters. Randomness is torch's mode: `train()` drops, `eval()`
    is deterministic.
    """

    def __init__(self, cfg: ViTConfig):
        super().__init__()
        D = cfg.hidden_size
        self.cfg = cfg
        self.patch_embed = make_patch_embed(cfg)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D)) if cfg.class_token else None
        self.reg_token = (
            nn.Parameter(torch.zeros(1, cfg.register_tokens, D)) if cfg.register_tokens else None
        )
        self.pos_embed = (
            nn.Parameter(torch.zeros(1, cfg.num_prefix_rows + cfg.num_patches, D))
            if cfg.pos_embed == "learned"
            else None
        )
        self.pos_drop = Dropout(cfg.dropout_embed)
        self.norm_pre = make_norm(cfg, D) if cfg.pre_norm else None
        self.blocks = nn.ModuleList([Block(cfg, i) for i in range(cfg.depth)])
        self.norm = make_norm(cfg, D) if cfg.final_norm == "pre_pool" else None
        self.pool = Pool(cfg)
        self.fc_norm = make_norm(cfg, D) if cfg.final_norm == "post_pool" else None
        self.head = nn.Linear(D, cfg.num_classes) if cfg.num_classes else None
        initialise(self, cfg)

    def position_table(self, x: torch.Tensor) -> torch.Tensor | None:
        """The position table (1, rows, D), prefix rows first, in the type of `x`."""
        if self.pos_embed is not None:
            return self.pos_embed
        table = fixed_position_table(self.cfg)
        return None if table is None else torch.tensor(table, dtype=x.dtype, device=x.device)[None]

    def add_positions(self, prefix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Join prefix tokens (B, P, D) and patch tokens (B, N, D), positions added: (B, P + N, D)."""
        table = self.position_table(x)
        if table is not None:
            rows, N = self.cfg.num_prefix_rows, x.shape[1]
            x = x + table[:, rows : rows + N]  # a smaller image takes the leading rows
            placed = prefix[:, :rows] + table[:, :rows]
            prefix = torch.cat([placed, prefix[:, rows:]], dim=1)
        return torch.cat([prefix, x], dim=1)  # (B, P + N, D)

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """Images (B, C, H, W) to the first block's input (B, P + N, D)."""
        x = self.patch_embed(images)  # (B, N, D)
        B, _, D = x.shape
        tokens = [t for t in (self.cls_token, self.reg_token) if t is not None]
        prefix = [t.expand(B, t.shape[1], D) for t in tokens]
        prefix = torch.cat([x.new_zeros(B, 0, D), *prefix], dim=1)  # (B, P, D)
        x = self.pos_drop(self.add_positions(prefix, x))
        return x if self.norm_pre is None else self.norm_pre(x)

    def forward(
        self,
        images: torch.Tensor,
        *,
        kernel: str = "reference",
        return_attention: bool = False,
        return_blocks: bool = False,
    ) -> ViTOutput:
        """Classify images.

        Args:
            images: (B, C, H, W), normalised.
            kernel: attention kernel, one of `vit_torch.attention.KERNELS`.
            return_attention: also return every block's attention weights.
            return_blocks: also return every block's output.

        Raises:
            InputError: an image the model was not built for, or attention weights asked of a fast
                kernel.
        """
        if images.ndim != 4:
            raise InputError(f"images have shape {tuple(images.shape)}, expected (B, C, H, W)")
        _, C, H, W = images.shape
        self.cfg.check_image(H, W, C)
        if return_attention and kernel != "reference":
            raise InputError(
                f"return_attention = True needs the weights that kernel = {kernel!r} never forms;"
                ' use kernel = "reference"'
            )
        x = self.embed(images)
        attention, blocks = [], []
        for block in self.blocks:
            x, weights = block(x, kernel=kernel)
            attention.append(weights)
            blocks.append(x)
        x = x if self.norm is None else self.norm(x)
        pooled = self.pool(x)  # (B, D)
        pooled = pooled if self.fc_norm is None else self.fc_norm(pooled)
        logits = pooled if self.head is None else self.head(pooled)  # (B, num_classes)
        if self.cfg.head_activation == "softmax":
            wide = torch.promote_types(logits.dtype, torch.float32)
            logits = torch.softmax(logits.to(wide), dim=-1).to(logits.dtype)
        P = self.cfg.num_prefix_tokens
        return ViTOutput(
            logits=logits,
            pooled=pooled,
            prefix_tokens=x[:, :P],
            patch_tokens=x[:, P:],
            attention=tuple(attention) if return_attention else None,
            blocks=tuple(blocks) if return_blocks else None,
        )
