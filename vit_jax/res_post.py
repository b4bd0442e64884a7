"""The block whose norms stand at the end of each branch."""

import jax
from flax import nnx

from vit_config import ViTConfig
from vit_jax.attention import make_attention
from vit_jax.drop import DropPath
from vit_jax.mlp import make_mlp
from vit_jax.norm import make_norm
from vit_jax.rope import Rotation


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
