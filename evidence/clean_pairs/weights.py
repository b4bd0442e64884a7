"""What all styles share: sizes, drawn weights in timm's names, images."""

from __future__ import annotations

import numpy as np

B, C, PATCH, GRID = 2, 3, 5, (2, 3)
HEIGHT, WIDTH = PATCH * GRID[0], PATCH * GRID[1]
TOKENS = GRID[0] * GRID[1] + 1
D, HEADS, HIDDEN, DEPTH, CLASSES = 30, 5, 44, 2, 11
HEAD_DIM = D // HEADS
EPSILON = 1e-6


def shapes(tokens: int = TOKENS) -> dict[str, tuple[int, ...]]:
    """Return the shapes by timm's names, in torch's layouts."""
    every: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, D),
        "pos_embed": (1, tokens, D),
        "patch_embed.proj.weight": (D, C, PATCH, PATCH),
        "patch_embed.proj.bias": (D,),
    }
    for i in range(DEPTH):
        for name, shape in {
            "norm1": (D,), "attn.qkv": (3 * D, D), "attn.proj": (D, D), "norm2": (D,),
            "mlp.fc1": (HIDDEN, D), "mlp.fc2": (D, HIDDEN),
        }.items():  # fmt: skip
            every[f"blocks.{i}.{name}.weight"] = shape
            every[f"blocks.{i}.{name}.bias"] = shape[:1]
    every |= {"norm.weight": (D,), "norm.bias": (D,)}
    return every | {"head.weight": (CLASSES, D), "head.bias": (CLASSES,)}


def draw(tokens: int = TOKENS) -> dict[str, np.ndarray]:
    """Weights in float32; gains are near one."""
    rng = np.random.default_rng(11)
    gains = ("norm1.weight", "norm2.weight", "norm.weight")
    return {
        name: (0.25 * rng.normal(size=shape) + name.endswith(gains)).astype(np.float32)
        for name, shape in shapes(tokens).items()
    }


def block(weights: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
    """The weights of one block."""
    prefix = f"blocks.{i}."
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


def images(channels_last: bool = False) -> np.ndarray:
    """(B, C, H, W), or with channels last."""
    x = np.random.default_rng(12).normal(size=(B, C, HEIGHT, WIDTH)).astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x


def heads_inside(weight: np.ndarray) -> np.ndarray:
    """Rows of a projection (h d) in the order (d h)."""
    rows = weight.reshape(HEADS, HEAD_DIM, *weight.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(0, 1)).reshape(weight.shape)
