"""The encoder block."""

import jax
from flax import nnx

from vit_config import ViTConfig
from vit_jax.attention import make_attention
from vit_jax.drop import DropPath
from vit_jax.mlp import Mlp
from vit_jax.norm import Identity, LayerScale, make_norm


class Block(nnx.Module):
    """Pre-norm attention and MLP, each on a residual branch (arXiv 2010.11929, equations 2 and 3)."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        D, scaled = cfg.hidden_size, cfg.layer_scale is not None
        self.norm1 = make_norm(cfg, D, rngs=rngs)
        self.attn = make_attention(cfg, rngs=rngs)
        self.ls1 = LayerScale(cfg, rngs=rngs) if scaled else Identity()
        self.drop_path1 = DropPath(cfg.block_drop_rates[index])
        self.norm2 = make_norm(cfg, D, rngs=rngs)
        self.mlp = Mlp(cfg, rngs=rngs)
        self.ls2 = LayerScale(cfg, rngs=rngs) if scaled else Identity()
        self.drop_path2 = DropPath(cfg.block_drop_rates[index])

    def __call__(
        self, x: jax.Array, *, kernel: str = "reference", rngs: nnx.Rngs | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """Tokens (B, N, D) to tokens (B, N, D) and the attention weights (B, h, N, N) or None."""
        y, weights = self.attn(self.norm1(x), kernel=kernel, rngs=rngs)
        x = x + self.drop_path1(self.ls1(y), rngs=rngs)
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x), rngs=rngs)), rngs=rngs)
        return x, weights
