"""Rotary position embeddings (arXiv 2104.09864) over a grid of patches: the options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import PositiveFloat, model_validator

from vit_config.base import Schema, Size


class Rope(Schema, frozen=True):
    """Which angles queries and keys of the patch tokens are turned by; prefix tokens never are."""

    kind: Literal["axial", "centered", "mixed"] = "axial"
    """Integer coordinates with the frequencies of language models (EVA-02, arXiv 2303.11331); patch
    centres in [-1, 1] (DINOv3, arXiv 2508.10104); or integer coordinates with frequencies learned per
    block and head (arXiv 2403.13298)."""
    theta: PositiveFloat = 10000.0
    """Base of the frequencies; of learned ones, of their initial values."""
    reference_grid: Size | None = None
    """Axial: the grid of pretraining, onto which the coordinates of another grid are rescaled."""
    offset: float = 0.0
    """Axial and centered: added to every coordinate, in patches."""
    axes: Literal["hw", "wh"] = "hw"
    """Which axis turns the first half of the pairs: rows first, or columns first."""
    pairs: Literal["interleaved", "half", "half_of_axis"] = "interleaved"
    """Which values of a head are turned together: (0, 1), (2, 3) ...; i and i + d / 2; or i and
    i + d / 4 in each half of the head, one for each axis."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := list(self._contradictions()):
            raise ValueError("; ".join(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        if self.kind != "axial" and self.reference_grid is not None:
            grid = self.reference_grid
            yield f'reference_grid = {grid} needs kind = "axial", but kind = "{self.kind}"'
        if self.kind == "mixed" and self.offset:
            yield f'offset = {self.offset} is never added with kind = "mixed"; leave it out'
        if self.kind == "mixed" and self.pairs != "interleaved":
            yield f'pairs = "{self.pairs}" does not go with kind = "mixed", whose pairs are interleaved'
