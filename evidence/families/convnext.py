"""ConvNeXt of timm (arXiv 2201.03545) in Linen, channels last, with grouped convolutions."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from evidence.families.drawn import channels_last, drawn, layer, norm, normal, weights, within

DEPTHS, WIDTHS = (1, 1, 2, 1), (5, 7, 11, 6)
IMAGES = normal(2, 3, 64, 32)


def original():
    from timm.models.convnext import ConvNeXt

    return drawn(ConvNeXt(depths=DEPTHS, dims=WIDTHS, num_classes=5)), (IMAGES,)


def port(model):
    return Net(), {"params": params(weights(model))}, (channels_last(IMAGES),)


def params(w):
    tree: dict[str, Any] = {"stem_conv": layer(w, "stem.0"), "stem_norm": norm(w, "stem.1")}
    tree |= {"head_norm": norm(w, "head.norm"), "head": layer(w, "head.fc")}
    for i, depth in enumerate(DEPTHS):
        if i:
            tree[f"down_norm_{i}"] = norm(w, f"stages.{i}.downsample.0")
            tree[f"down_{i}"] = layer(w, f"stages.{i}.downsample.1")
        for j in range(depth):
            block = within(w, f"stages.{i}.blocks.{j}.")
            tree[f"block_{i}_{j}"] = {
                "depthwise": layer(block, "conv_dw"), "norm": norm(block, "norm"),
                "expand": layer(block, "mlp.fc1"), "reduce": layer(block, "mlp.fc2"),
                "gamma": block["gamma"],
            }  # fmt: skip
    return tree


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.width, (7, 7), padding=3, feature_group_count=self.width, name="depthwise")(x)
        y = nn.LayerNorm(epsilon=1e-6, name="norm")(y)
        y = nn.Dense(4 * self.width, name="expand")(y)
        y = nn.gelu(y, approximate=False)
        y = nn.Dense(self.width, name="reduce")(y)
        gamma = self.param("gamma", nn.initializers.ones, (self.width,))
        return x + gamma * y


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(WIDTHS[0], (4, 4), strides=(4, 4), padding="VALID", name="stem_conv")(x)
        x = nn.LayerNorm(epsilon=1e-6, name="stem_norm")(x)
        for i, (depth, width) in enumerate(zip(DEPTHS, WIDTHS, strict=True)):
            if i > 0:
                x = nn.LayerNorm(epsilon=1e-6, name=f"down_norm_{i}")(x)
                x = nn.Conv(width, (2, 2), strides=(2, 2), padding="VALID", name=f"down_{i}")(x)
            for j in range(depth):
                x = Block(width, name=f"block_{i}_{j}")(x)
        x = jnp.mean(x, axis=(1, 2))
        x = nn.LayerNorm(epsilon=1e-6, name="head_norm")(x)
        return nn.Dense(5, name="head")(x)
