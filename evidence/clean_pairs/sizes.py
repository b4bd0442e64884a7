"""Sizes of the models that are compared: every class of width, depth, heads and extras once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

FEATURES = ("registers", "layer scale", "qk norm", "mean", "no class token", "relu")
"""What a style may lack; a size without it is what such a style meets."""


@dataclass(frozen=True)
class Size:
    """A Vision Transformer's sizes and switches."""

    width: int = 24
    heads: int = 4
    depth: int = 2
    hidden: int = 44
    patch: int = 4
    grid: tuple[int, int] = (2, 3)
    classes: int = 7
    batch: int = 2
    epsilon: float = 1e-6
    class_token: bool = True
    registers: int = 0
    gamma: float | None = None
    """What fresh factors of the layer scale hold; None where there are none."""
    qk_norm: bool = False
    mean: bool = False
    """Whether patch tokens are averaged; else the class token is taken."""
    relu: bool = False

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.heads

    @property
    def patches(self) -> int:
        """Tokens of patches."""
        return self.grid[0] * self.grid[1]

    @property
    def prefix(self) -> int:
        """Tokens in front of them."""
        return self.class_token + self.registers

    @property
    def positions(self) -> int:
        """Rows of the position table; with registers, the class token has none, as in timm's DINOv2."""
        return self.patches + (self.class_token and not self.registers)

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.grid[0] * self.patch, self.grid[1] * self.patch

    @property
    def features(self) -> frozenset[str]:
        """Which of `FEATURES` it has."""
        has = (self.registers, self.gamma is not None, self.qk_norm, self.mean, not self.class_token)
        return frozenset(f for f, given in zip(FEATURES, (*has, self.relu), strict=True) if given)

    def only(self, accepted: frozenset[str]) -> Size:
        """The same without the features that are not accepted."""
        off = self.features - accepted
        if "mean" in off:
            off |= {"no class token"} & self.features
        changes = {
            "registers": {"registers": 0}, "layer scale": {"gamma": None}, "qk norm": {"qk_norm": False},
            "mean": {"mean": False}, "no class token": {"class_token": True}, "relu": {"relu": False},
        }  # fmt: skip
        return replace(self, **{k: v for name in off for k, v in changes[name].items()})

    def images(self, channels_last: bool = False) -> np.ndarray:
        """(B, C, H, W), or with channels last, in float32."""
        x = np.random.default_rng(12).normal(size=(self.batch, 3, *self.image)).astype(np.float32)
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x


SIZES = {
    "tiny": Size(),
    "width 8": Size(width=8, heads=2, depth=1, hidden=32),
    "one head": Size(width=16, heads=1, hidden=64),
    "six heads": Size(width=48, heads=6, depth=3, hidden=96, grid=(3, 2)),
    "layer scale": Size(gamma=1e-5, depth=3),
    "registers": Size(registers=4, gamma=1e-5, width=32, hidden=128),
    "qk norm": Size(qk_norm=True, grid=(3, 3), patch=3),
    "mean": Size(mean=True, hidden=24),
    "square": Size(width=16, hidden=16, class_token=False, mean=True, grid=(4, 3)),
    "everything": Size(registers=3, gamma=0.1, qk_norm=True, mean=True, width=20, depth=3),
    "two blocks of 96": Size(width=96, heads=3, hidden=192),
    "deep": Size(width=16, heads=2, depth=12, hidden=32),
    "width 384": Size(width=384, heads=6, depth=1, hidden=768, batch=1),
}
"""Classes of sizes by name."""
LARGE = ("deep", "width 384", "two blocks of 96")
"""Those that take longer, which each style meets rarely."""
