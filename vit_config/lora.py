"""Low-rank adapters (LoRA, arXiv 2106.09685): the schema of their places and size."""

from __future__ import annotations

from pydantic import PositiveFloat

from vit_config.base import NameTuple, PositiveInt, Schema


class Lora(Schema, frozen=True):
    """Which weights have adapters, and of which size."""

    rank: PositiveInt = 8
    """Rows of A and columns of B."""
    alpha: PositiveFloat = 16.0
    """B A is multiplied by alpha / rank."""
    targets: NameTuple = ("blocks.*.attn.qkv", "blocks.*.attn.proj")
    """Paths of linear layers, in which a * also crosses dots."""

    @property
    def scale(self) -> float:
        """Factor of B A."""
        return self.alpha / self.rank
