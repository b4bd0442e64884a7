"""The Vision Transformers of Google's two Flax repositories, written from their published structure.

Names and shapes of the parameters come from flax.linen itself, so that no table of ours is proven by
itself. Parameters decide the type of the computation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from vit_config import ViTConfig

LINEN, PRE_LINEN = (0, 0, 1, 0), (0, 1, 2, 3)


class MlpBlock(nn.Module):
    mlp_dim: int

    @nn.compact
    def __call__(self, x):
        hidden = nn.gelu(nn.Dense(self.mlp_dim)(x))
        return nn.Dense(x.shape[-1])(hidden)


class Encoder1DBlock(nn.Module):
    num_heads: int
    mlp_dim: int
    numbers: tuple[int, int, int, int] = LINEN

    @nn.compact
    def __call__(self, x, _=None):
        norm1, attention, norm2, mlp = self.numbers
        y = nn.LayerNorm(name=f"LayerNorm_{norm1}")(x)
        name = f"MultiHeadDotProductAttention_{attention}"
        x = x + nn.MultiHeadDotProductAttention(self.num_heads, name=name)(y, y)
        y = nn.LayerNorm(name=f"LayerNorm_{norm2}")(x)
        return x + MlpBlock(self.mlp_dim, name=f"MlpBlock_{mlp}")(y), None


class AddPositionEmbs(nn.Module):
    @nn.compact
    def __call__(self, x):
        init = nn.initializers.normal(0.02)
        return x + self.param("pos_embedding", init, (1, *x.shape[1:]))


class Encoder(nn.Module):
    cfg: ViTConfig
    numbers: tuple[int, int, int, int]
    scan: bool
    positions: bool

    @nn.compact
    def __call__(self, x):
        cfg = self.cfg
        if self.positions:
            x = AddPositionEmbs(name="posembed_input")(x)
        if self.scan:
            block = nn.scan(
                Encoder1DBlock,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=cfg.depth,
            )
            x, _ = block(cfg.num_heads, cfg.mlp_dim, name="encoderblock")(x, None)
        else:
            for i in range(cfg.depth):
                name = f"encoderblock_{i}"
                x, _ = Encoder1DBlock(cfg.num_heads, cfg.mlp_dim, self.numbers, name=name)(x)
        return nn.LayerNorm(name="encoder_norm")(x)


class MAPHead(nn.Module):
    num_heads: int
    mlp_dim: int

    @nn.compact
    def __call__(self, x):
        batch, _, width = x.shape
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, width))
        x = nn.MultiHeadDotProductAttention(self.num_heads)(jnp.tile(probe, [batch, 1, 1]), x)
        y = nn.LayerNorm()(x)
        return (x + MlpBlock(self.mlp_dim)(y))[:, 0]


def sincos_2d(rows, columns, width, temperature=10_000.0):
    """Positions without parameters, as Big Vision computes them."""
    y, x = jnp.mgrid[:rows, :columns]
    omega = 1.0 / (temperature ** (jnp.arange(width // 4) / (width // 4 - 1)))
    y = jnp.einsum("m,d->md", y.flatten(), omega)
    x = jnp.einsum("m,d->md", x.flatten(), omega)
    return jnp.concatenate([jnp.sin(x), jnp.cos(x), jnp.sin(y), jnp.cos(y)], axis=1)[None]


class LinenViT(nn.Module):
    """Either repository's model.

    Args:
        big_vision: positions are added before the class token is put in front, by the model itself.
    """

    cfg: ViTConfig
    big_vision: bool = False
    numbers: tuple[int, int, int, int] = LINEN
    scan: bool = False

    @nn.compact
    def __call__(self, x):
        cfg = self.cfg
        D, patch = cfg.hidden_size, cfg.patch_size
        x = nn.Conv(D, patch, strides=patch, padding="VALID", name="embedding")(x)
        batch, rows, columns, _ = x.shape
        x = x.reshape(batch, rows * columns, D)
        if self.big_vision and cfg.pos_embed == "learned":
            x = x + self.param("pos_embedding", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        elif self.big_vision:
            x = x + sincos_2d(rows, columns, D)
        if cfg.class_token:
            token = self.param("cls", nn.initializers.zeros, (1, 1, D))
            x = jnp.concatenate([jnp.tile(token, [batch, 1, 1]), x], axis=1)
        x = Encoder(cfg, self.numbers, self.scan, not self.big_vision, name="Transformer")(x)
        if cfg.pool == "map":
            x = MAPHead(cfg.num_heads, cfg.mlp_dim, name="MAPHead_0")(x)
        else:
            x = x[:, 0] if cfg.pool == "class" else x.mean(axis=1)
        if cfg.head_hidden:
            x = nn.tanh(nn.Dense(cfg.head_hidden, name="pre_logits")(x))
        return nn.Dense(cfg.num_classes, name="head")(x) if cfg.num_classes else x

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's shape by its flat name."""
        return _shapes(self)

    def drawn(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Parameters in float64, none at a value that hides a fault."""
        rng = np.random.default_rng(seed)
        return {
            name: 0.2 * rng.standard_normal(shape) + name.endswith("scale")
            for name, shape in self.shapes().items()
        }

    def logits(self, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
        """Of images (B, C, H, W) float64."""
        assert {name: each.shape for name, each in parameters.items()} == self.shapes()
        with jax.enable_x64(True):
            tree = traverse_util.unflatten_dict(parameters, sep="/")
            out = _program(self)({"params": tree}, jnp.asarray(images.transpose(0, 2, 3, 1)))
        return np.asarray(out)


@cache  # one for all models of the same schema
def _program(model: LinenViT) -> Callable:
    return jax.jit(model.apply)


@cache  # Flax traces the model for them
def _shapes(model: LinenViT) -> dict[str, tuple[int, ...]]:
    image = jnp.zeros((1, *model.cfg.image_size, model.cfg.in_channels))
    tree = jax.eval_shape(model.init, jax.random.key(0), image)["params"]
    return {name: leaf.shape for name, leaf in traverse_util.flatten_dict(tree, sep="/").items()}


def loaded(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file."""
    with np.load(path) as file:
        return dict(file)
