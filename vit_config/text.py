"""The one description of a text tower that both twins are built from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from vit_config.base import PositiveInt, Schema
from vit_config.choices import Act
from vit_config.errors import InputError
from vit_config.schema import ViTConfig


class TextConfig(Schema, frozen=True):
    """The text tower of a CLIP (arXiv 2103.00020) or a SigLIP (arXiv 2303.15343).

    The defaults are the tower of OpenAI's ViT-B/32.

    Raises:
        ConfigError: an unknown field, a wrong type, or fields that contradict each other.
    """

    vocab_size: PositiveInt = 49408
    """Number of token ids."""
    context_length: PositiveInt = 77
    """Most tokens of a text; rows of the position table."""
    hidden_size: PositiveInt = 512
    """Width D of every token."""
    depth: Annotated[PositiveInt, Field(le=4096)] = 12
    """Number of blocks."""
    num_heads: PositiveInt = 8
    """Attention heads; must divide hidden_size."""
    mlp_dim: PositiveInt = 2048
    """Width of the hidden layer of each MLP."""
    act: Act = "quick_gelu"
    """Activation of the MLP, as in `ViTConfig`."""
    norm_eps: PositiveFloat = 1e-5
    """Epsilon inside the square root of every LayerNorm."""
    causal: bool = True
    """Whether a token sees only itself and those before it."""
    pool: Literal["eos", "largest", "last", "first"] = "largest"
    """Which token stands for the text: the first whose id is eos_id; the first of the largest id, as
    OpenAI's code; the last, padding or not; or the first."""
    eos_id: NonNegativeInt | None = None
    """Id of the token that ends a text; only of pool = eos."""
    projection_dim: PositiveInt | None = 512
    """Width E of the space shared with images; None builds no projection."""
    projection_bias: bool = False
    """Whether the projection has a bias."""
    logit_scale: bool = True
    """Whether the tower holds the logarithm of the factor of the similarities of texts and images."""
    logit_bias: bool = False
    """Whether it holds what is added to them, as SigLIP does."""

    @property
    def encoder(self) -> ViTConfig:
        """The schema of the blocks: they are those of an image tower."""
        return ViTConfig(
            hidden_size=self.hidden_size,
            depth=self.depth,
            num_heads=self.num_heads,
            mlp_dim=self.mlp_dim,
            act=self.act,
            norm_eps=self.norm_eps,
        )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse ids (B, N) that are not of this shape, or too many to a text.

        Raises:
            InputError: with the reason.
        """
        if len(shape) != 2 or not shape[1]:
            raise InputError(f"token ids have shape {tuple(shape)}, expected (texts, tokens)")
        if shape[1] > self.context_length:
            raise InputError(
                f"a text of {shape[1]} tokens, the model takes context_length = {self.context_length};"
                " shorten it"
            )

    def check_ids(self, ids: np.ndarray) -> None:
        """Refuse ids that the tower has no token for, or texts without the token that is pooled.

        Raises:
            InputError: with the reason.
        """
        self.check_shape(ids.shape)
        if not np.issubdtype(ids.dtype, np.integer):
            raise InputError(f"token ids are {ids.dtype}, expected integers")
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            wrong = ids[(ids < 0) | (ids >= self.vocab_size)][0]
            raise InputError(f"token id {wrong}: the model has vocab_size = {self.vocab_size}")
        if self.pool == "eos" and len(without := np.flatnonzero((ids != self.eos_id).all(axis=1))):
            raise InputError(
                f"text {without[0]} does not have the token eos_id = {self.eos_id}, which is pooled; end"
                " it with that id"
            )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.pool == "eos") != (self.eos_id is not None):
            raise ValueError(f'eos_id = {self.eos_id} with pool = "{self.pool}"; only eos has one')
        if self.eos_id is not None and self.eos_id >= self.vocab_size:
            raise ValueError(f"eos_id = {self.eos_id}, but vocab_size = {self.vocab_size}")
        if self.projection_bias and self.projection_dim is None:
            raise ValueError("projection_bias = True without a projection")
        if self.logit_bias and not self.logit_scale:
            raise ValueError("logit_bias = True without logit_scale")
        self.encoder  # noqa: B018 - refuses what no block can be
        return self
