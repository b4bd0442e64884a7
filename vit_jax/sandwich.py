"""The block whose branches have a norm at both ends."""

import jax
from flax import nnx

from vit_config import ViTConfig
from vit_jax.attention import make_attention
from vit_jax.drop import DropPath
from vit_jax.mlp import make_mlp
from vit_jax.norm import make_norm
from vit_jax.rope import Rotation


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
