"""The encoder blocks of two branches, one after the other."""

import jax
from flax import nnx

from vit_config import ViTConfig
from vit_jax.attention import make_attention
from vit_jax.branches import ParallelBranchesBlock
from vit_jax.drop import DropPath
from vit_jax.mlp import make_mlp
from vit_jax.norm import make_layer_scale, make_norm
from vit_jax.parallel import DifferentialParallelBlock, ParallelBlock
from vit_jax.rope import Rotation


class Block(nnx.Module):
    """Pre-norm attention and MLP, each on a residual branch (arXiv 2010.11929, equations 2 and 3)."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        self.norm1 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.attn = make_attention(cfg, index, rngs=rngs)
        self.ls1 = make_layer_scale(cfg, "attention", rngs=rngs)
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.norm2 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.mlp = make_mlp(cfg, rngs=rngs)
        self.ls2 = make_layer_scale(cfg, "mlp", rngs=rngs)
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None.

        Args:
            first: how many tokens to return; None is all. The others are only attended to.
            valid: (B, N) bool, the tokens that are attended to; None is all.
        """
        y, weights = self.attn(self.norm1(x), rotation=rotation, first=first, valid=valid, rngs=rngs)
        x = x[:, :first] + self.drop_path1(self.ls1(y), rngs=rngs)
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x), rngs=rngs)), rngs=rngs)
        return x, weights


class ResPostBlock(nnx.Module):
    """Attention and MLP on residual branches that end with a norm (Swin V2, arXiv 2111.09883, 3.2)."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        self.attn = make_attention(cfg, index, rngs=rngs)
        self.norm1 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.mlp = make_mlp(cfg, rngs=rngs)
        self.norm2 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        y, weights = self.attn(x, rotation=rotation, first=first, valid=valid, rngs=rngs)
        x = x[:, :first] + self.drop_path1(self.norm1(y), rngs=rngs)
        x = x + self.drop_path2(self.norm2(self.mlp(x, rngs=rngs)), rngs=rngs)
        return x, weights


class SandwichBlock(nnx.Module):
    """Attention and MLP on residual branches that begin and end with a norm (arXiv 2105.13290, 2.4)."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        self.norm1 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.attn = make_attention(cfg, index, rngs=rngs)
        self.norm2 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.norm3 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.mlp = make_mlp(cfg, rngs=rngs)
        self.norm4 = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        y, weights = self.attn(self.norm1(x), rotation=rotation, first=first, valid=valid, rngs=rngs)
        x = x[:, :first] + self.drop_path1(self.norm2(y), rngs=rngs)
        x = x + self.drop_path2(self.norm4(self.mlp(self.norm3(x), rngs=rngs)), rngs=rngs)
        return x, weights


def make_block(cfg: ViTConfig, index: int, *, rngs: nnx.Rngs) -> nnx.Module:
    """Build the schema's block number `index`; all kinds have `Block`'s arguments and results."""
    if cfg.num_parallel > 1:
        return ParallelBranchesBlock(cfg, index, rngs=rngs)
    if cfg.block == "parallel" and cfg.attention == "differential":
        return DifferentialParallelBlock(cfg, index, rngs=rngs)
    kinds = {
        "pre_norm": Block,
        "res_post": ResPostBlock,
        "sandwich": SandwichBlock,
        "parallel": ParallelBlock,
    }
    return kinds[cfg.block](cfg, index, rngs=rngs)
