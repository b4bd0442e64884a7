"""The one description of a Vision Transformer that both twins are built from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from vit_config.base import Schema, Size
from vit_config.errors import InputError

Rate = Annotated[float, Field(ge=0, lt=1)]
"""The probability that a value is dropped in training."""


class ViTConfig(Schema):
    """A Vision Transformer (Dosovitskiy et al. 2020, arXiv 2010.11929), every switch by name.

    The defaults are ViT-Base/16 as timm builds it. Sizes are integers or (h, w) pairs.

    Raises:
        ConfigError: an unknown field, a wrong type, or fields that contradict each other.
    """

    image_size: Size = (224, 224)
    """Height and width of the input, in pixels."""
    patch_size: Size = (16, 16)
    """Height and width of one patch, in pixels; must divide the image."""
    in_channels: PositiveInt = 3
    """Channels of the input image, or of the feature map a hybrid starts from."""
    hidden_size: PositiveInt = 768
    """Width D of every token."""
    depth: PositiveInt = 12
    """Number of encoder blocks."""
    num_heads: PositiveInt = 12
    """Attention heads; must divide hidden_size."""
    mlp_dim: PositiveInt = 3072
    """Width M of the hidden layer of each MLP."""
    num_classes: NonNegativeInt = 1000
    """Width of the classification head; 0 builds no head and returns the pooled features."""

    patch_embed: Literal["conv", "linear_hwc", "linear_chw"] = "conv"
    """Patch projection: a strided convolution, or a linear layer on the flattened patch with its
    values in (row, column, channel) or (channel, row, column) order."""
    patch_bias: bool = True
    """Whether the patch projection has a bias."""
    patch_input_norm: bool = False
    """Normalise each flattened patch before a linear patch projection."""
    patch_norm: bool = False
    """Normalise each token right after the patch projection."""

    class_token: bool = True
    """Prepend a learned class token."""
    register_tokens: NonNegativeInt = 0
    """Learned register tokens between the class token and the patches (arXiv 2309.16588)."""
    pos_embed: Literal["learned", "sincos1d", "sincos2d", "sincos2d_simple", "none"] = "learned"
    """Position table: learned; sine-cosine over the token index (arXiv 1706.03762); over the grid as
    in MAE; over the grid as in SimpleViT and Big Vision; or no positions at all."""
    pos_embed_prefix: Literal["auto", "all", "class", "none"] = "auto"
    """Which tokens before the patches have a row in the position table; auto is all of them, or none
    where the table knows only the grid."""
    pos_embed_resize: Literal["none", "leading_rows"] = "none"
    """An image of another size: an error, or (if no larger) the leading rows of the table."""
    pre_norm: bool = False
    """Normalise the tokens once more before the first block, as CLIP does."""

    attention: Literal["fused", "per_head"] = "fused"
    """One q, k, v projection of the whole width, or one small projection per head that sees only the
    head's own slice (a block-diagonal projection)."""
    qkv_bias: bool = True
    """Whether the q, k, v projections have biases."""
    attention_out_proj: bool = True
    """Project the concatenated heads once more."""
    attention_out_bias: bool = True
    """Whether that output projection has a bias."""
    act: Literal["gelu", "gelu_tanh", "quick_gelu", "silu", "relu"] = "gelu"
    """Activation of the MLP: exact (erf) GELU, its tanh approximation, x * sigmoid(1.702 x), SiLU or
    ReLU."""
    mlp_bias: bool = True
    """Whether the two MLP layers have biases."""
    layer_scale: PositiveFloat | None = None
    """Initial gain of a learned per-channel scale on each residual branch (arXiv 2103.17239); None
    builds no scale."""

    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Kind of every normalisation layer."""
    norm_eps: PositiveFloat = 1e-6
    """Epsilon inside the square root of every normalisation layer."""
    final_norm: Literal["pre_pool", "post_pool", "none"] = "pre_pool"
    """Normalise all tokens after the last block, only the pooled vector, or nothing."""
    pool: Literal["class", "mean"] = "class"
    """What the head sees: the class token, or the mean of the patch tokens."""
    head_activation: Literal["none", "softmax"] = "none"
    """What is applied to the head's output inside the model."""

    dropout_embed: Rate = 0.0
    """Dropout on the tokens after positions are added."""
    dropout_attention: Rate = 0.0
    """Dropout on the attention weights."""
    dropout_attention_out: Rate = 0.0
    """Dropout on the output of each attention layer."""
    dropout_mlp_inner: Rate = 0.0
    """Dropout after the activation of each MLP."""
    dropout_mlp_outer: Rate = 0.0
    """Dropout on the output of each MLP."""
    stochastic_depth: Rate = 0.0
    """Rate at which the last block's residual branches are skipped per image (arXiv 1603.09382); it
    grows linearly from 0 at the first block."""

    init: Literal["timm", "torch", "torch_mha", "torch_uniform_tokens", "xavier_normal"] = "timm"
    """Recipe of the initial values; see `vit_config.init`."""

    @property
    def grid(self) -> tuple[int, int]:
        """Patches per column and per row of the configured image."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def num_patches(self) -> int:
        """Patch tokens N of the configured image."""
        return self.grid[0] * self.grid[1]

    @property
    def patch_dim(self) -> int:
        """Values in one flattened patch."""
        return self.patch_size[0] * self.patch_size[1] * self.in_channels

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens P before the patches: class token, then registers."""
        return int(self.class_token) + self.register_tokens

    @property
    def num_prefix_rows(self) -> int:
        """Leading rows of the position table that belong to prefix tokens."""
        grid_only = self.pos_embed not in ("learned", "sincos1d")
        everyone = self.num_prefix_tokens
        rows = {"auto": 0 if grid_only else everyone, "all": everyone, "class": 1, "none": 0}
        return rows[self.pos_embed_prefix]

    @property
    def head_dim(self) -> int:
        """Width d of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def block_drop_rates(self) -> tuple[float, ...]:
        """Stochastic-depth rate of each block."""
        steps = max(self.depth - 1, 1)
        return tuple(self.stochastic_depth * i / steps for i in range(self.depth))

    def check_image(self, height: int, width: int, channels: int) -> None:
        """Refuse an input the model was not built for.

        Raises:
            InputError: wrong channels, or a size this schema cannot take.
        """
        if channels != self.in_channels:
            raise InputError(
                f"the image has {channels} channels, the model takes in_channels = {self.in_channels}"
            )
        if (height, width) == self.image_size:
            return
        given, built = f"{height}x{width}", "{}x{}".format(*self.image_size)
        if self.pos_embed_resize == "none":
            raise InputError(
                f"the image is {given}, the model takes image_size = {built}; resize the image, or"
                ' build the model with pos_embed_resize = "leading_rows"'
            )
        rows, columns = height // self.patch_size[0], width // self.patch_size[1]
        covered = rows * self.patch_size[0], columns * self.patch_size[1]
        if covered != (height, width) or not rows * columns:
            raise InputError(
                f"the image is {given}, not divisible by patch_size = {self.patch_size}; "
                + _nearest_sizes((height, width), self.patch_size)
            )
        if rows * columns > self.num_patches:
            raise InputError(
                f"the image is {given} and has {rows * columns} patches, the position table of"
                f" image_size = {built} has {self.num_patches}; use a smaller image"
            )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := list(self._contradictions()):
            raise ValueError("; ".join(problems))
        return self

    def _contradictions(self):
        """Yield one sentence for each pair of fields that cannot both hold."""
        if any(side % patch for side, patch in zip(self.image_size, self.patch_size, strict=True)):
            yield (
                f"image_size = {self.image_size} is not divisible by patch_size = {self.patch_size}; "
                + _nearest_sizes(self.image_size, self.patch_size)
            )
        if self.hidden_size % self.num_heads:
            yield (
                f"num_heads = {self.num_heads} does not divide hidden_size = {self.hidden_size};"
                " make the width a multiple of the heads"
            )
        if self.pool == "class" and not self.class_token:
            yield (
                'pool = "class" needs class_token = true, but class_token = false;'
                ' set pool = "mean" or class_token = true'
            )
        if self.patch_input_norm and self.patch_embed == "conv":
            yield (
                'patch_input_norm = true needs flattened patches, but patch_embed = "conv";'
                ' set patch_embed = "linear_hwc"'
            )
        if self.attention_out_bias and not self.attention_out_proj:
            yield (
                "attention_out_bias = true has no projection to belong to, because"
                " attention_out_proj = false; set attention_out_bias = false"
            )
        if self.head_activation != "none" and not self.num_classes:
            yield (
                f'head_activation = "{self.head_activation}" has no head to follow, because'
                ' num_classes = 0; set head_activation = "none"'
            )
        if self.stochastic_depth and self.depth == 1:
            yield (
                f"stochastic_depth = {self.stochastic_depth} never applies with depth = 1, because"
                " the first block is never skipped; set it to 0"
            )
        yield from self._position_contradictions()

    def _position_contradictions(self):
        kind, prefix = self.pos_embed, self.pos_embed_prefix
        if kind not in ("learned", "sincos1d"):
            if prefix in ("all", "class"):
                yield (
                    f'pos_embed_prefix = "{prefix}" but pos_embed = "{kind}" has no rows for tokens'
                    ' outside the grid; set pos_embed_prefix = "auto"'
                )
            if self.pos_embed_resize == "leading_rows":
                yield (
                    'pos_embed_resize = "leading_rows" needs a table over the token index, but'
                    f' pos_embed = "{kind}"; set pos_embed_resize = "none"'
                )
        if prefix == "class" and not (self.class_token and self.register_tokens):
            yield (
                'pos_embed_prefix = "class" needs a class token and registers, but class_token ='
                f" {str(self.class_token).lower()} and register_tokens = {self.register_tokens};"
                ' set pos_embed_prefix = "auto"'
            )
        if kind == "sincos1d" and self.hidden_size % 2:
            yield (
                f'pos_embed = "sincos1d" needs an even hidden_size, but hidden_size = {self.hidden_size}'
            )
        if kind.startswith("sincos2d") and self.hidden_size % 4:
            yield (
                f'pos_embed = "{kind}" needs hidden_size divisible by 4, but hidden_size ='
                f" {self.hidden_size}"
            )


def _nearest_sizes(size: tuple[int, int], patch: tuple[int, int]) -> str:
    below = [max(side // p, 1) * p for side, p in zip(size, patch, strict=True)]
    above = [-(-side // p) * p for side, p in zip(size, patch, strict=True)]
    sizes = dict.fromkeys(["{}x{}".format(*below), "{}x{}".format(*above)])
    return "the nearest valid sizes are " + " and ".join(sizes)
