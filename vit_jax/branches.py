"""The block with several attentions side by side, then several MLPs."""

import jax
import jax.numpy as jnp
from flax import nnx

from vit_config import ViTConfig
from vit_jax.attention import make_attention
from vit_jax.drop import DropPath
from vit_jax.mlp import make_mlp
from vit_jax.norm import make_layer_scale, make_norm
from vit_jax.rope import Rotation


class AttentionBranch(nnx.Module):
    """One residual branch with attention."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        self.norm = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.attn = make_attention(cfg, index, rngs=rngs)
        self.ls = make_layer_scale(cfg, "attention", rngs=rngs)
        self.drop_path = DropPath(cfg.block_drop_rates[index])

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Compute the update to tokens (B, N, D), and the attention weights or None."""
        y, weights = self.attn(self.norm(x), rotation=rotation, first=first, valid=valid, rngs=rngs)
        return self.drop_path(self.ls(y), rngs=rngs), weights


class MlpBranch(nnx.Module):
    """One residual branch with an MLP."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        self.norm = make_norm(cfg, cfg.hidden_size, rngs=rngs)
        self.mlp = make_mlp(cfg, rngs=rngs)
        self.ls = make_layer_scale(cfg, "mlp", rngs=rngs)
        self.drop_path = DropPath(cfg.block_drop_rates[index])

    def __call__(self, x: jax.Array, *, rngs: nnx.Rngs | None = None) -> jax.Array:
        """Compute the update to tokens (B, N, D)."""
        return self.drop_path(self.ls(self.mlp(self.norm(x), rngs=rngs)), rngs=rngs)


class ParallelBranchesBlock(nnx.Module):
    """A block that adds several attentions, then several MLPs (arXiv 2203.09795, equation 2)."""

    def __init__(self, cfg: ViTConfig, index: int, *, rngs: nnx.Rngs):
        branches = range(cfg.num_parallel)
        self.attns = nnx.List([AttentionBranch(cfg, index, rngs=rngs) for _ in branches])
        self.ffns = nnx.List([MlpBranch(cfg, index, rngs=rngs) for _ in branches])

    def __call__(
        self,
        x: jax.Array,
        *,
        rotation: Rotation | None = None,
        first: int | None = None,
        valid: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Map tokens (B, N, D) to tokens (B, N, D) and the weights (B, branches * h, N, N) or None."""
        results = [
            branch(x, rotation=rotation, first=first, valid=valid, rngs=rngs) for branch in self.attns
        ]
        x = x[:, :first] + sum(y for y, _ in results)
        x = x + sum(branch(x, rngs=rngs) for branch in self.ffns)
        weights = [each for _, each in results if each is not None]
        return x, jnp.concatenate(weights, axis=1) if weights else None
