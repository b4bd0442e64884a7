"""The one description of a Vision Transformer that both twins are built from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from vit_config.base import LARGEST, IntTuple, PositiveInt, Schema, Size
from vit_config.choices import Act, Init, Resampling
from vit_config.contradictions import contradictions
from vit_config.rope import Rope

DEEPEST = 4096
"""Most encoder blocks."""
Rate = Annotated[float, Field(ge=0, lt=1)]
"""The probability that a value is dropped in training."""


class ViTConfig(Schema, frozen=True):
    """A Vision Transformer (Dosovitskiy et al. 2020, arXiv 2010.11929), every switch by name.

    The defaults are ViT-Base/16 as timm builds it. Sizes are integers or (h, w) pairs.

    Raises:
        ConfigError: an unknown field, a wrong type, or fields that contradict each other.
    """

    image_size: Size = (224, 224)
    """Height and width of the input, in pixels."""
    patch_size: Size = (16, 16)
    """Height and width of one patch, in pixels."""
    patch_remainder: Literal["refuse", "crop"] = "refuse"
    """What to do where patches do not divide the image: refuse, or ignore the last rows and columns of
    pixels, as a convolution without padding does."""
    in_channels: PositiveInt = 3
    """Channels of the input image, or of the feature map a hybrid starts from."""
    hidden_size: PositiveInt = 768
    """Width D of every token."""
    depth: Annotated[PositiveInt, Field(le=DEEPEST)] = 12
    """Number of encoder blocks."""
    num_heads: PositiveInt = 12
    """Attention heads; must divide hidden_size, unless attention_head_dim is given."""
    num_kv_heads: PositiveInt | IntTuple | None = None
    """Heads of keys and values, each shared by a group of query heads (arXiv 2305.13245): one number, or
    one per block; None means as many as queries."""
    attention_head_dim: PositiveInt | None = None
    """Width of one attention head; None means hidden_size / num_heads. Heads of another width are
    projected from hidden_size values and, joined, back to as many."""
    mlp_dim: PositiveInt = 3072
    """Width M of the hidden layer of each MLP."""
    num_classes: Annotated[int, Field(ge=0, le=10_000_000)] = 1000
    """Width of the classification head; 0 builds no head and returns what it would see."""

    patch_embed: Literal["conv", "linear_hwc", "linear_chw"] = "conv"
    """Patch projection: a strided convolution, or a linear layer on the flattened patch with its
    values in (row, column, channel) or (channel, row, column) order."""
    patch_bias: bool = True
    """Whether the patch projection has a bias."""
    patch_input_norm: bool = False
    """Normalise each flattened patch before a linear patch projection."""
    patch_norm: bool = False
    """Normalise each token right after the patch projection."""
    centre_pixels: bool = False
    """Map every value x of the images to 2 (x - 1/2) first, which brings [0, 1] to [-1, 1]."""

    class_token: bool = True
    """Prepend a learned class token."""
    distill_token: bool = False
    """A distillation token after the class token, with a head of its own; the logits are the mean of
    both heads' (arXiv 2012.12877)."""
    register_tokens: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    """Learned register tokens between the class token and the patches (arXiv 2309.16588)."""
    pos_embed: Literal["learned", "factorized", "sincos1d", "sincos2d", "sincos2d_simple", "none"] = (
        "learned"
    )
    """Position table: learned; the sum of a learned table of rows and one of columns (arXiv 2307.06304);
    sine-cosine over the token index (arXiv 1706.03762); over the grid as in MAE; over the grid as in
    SimpleViT and Big Vision; or no positions at all."""
    pos_embed_grid: Size | None = None
    """Rows and columns of a learned position table that is fitted to the grid of every image; None means
    the grid of image_size."""
    pos_embed_prefix: Literal["auto", "all", "class", "none"] = "auto"
    """Which tokens before the patches have a row in the position table; auto is all of them, or none
    where the table knows only the grid."""
    pos_embed_resize: Resampling = "bicubic_antialias"
    """How a learned position table is fitted to another grid, when weights are loaded for another image
    size and, with dynamic_image_size, at call time; see `vit_config.numerics.resample`."""
    pos_embed_aspect: Literal["stretch", "keep"] = "stretch"
    """Whether each side of a learned position table is fitted to its own side of another grid, or both
    to the longer one, of which a grid that is not square takes the first rows or columns."""
    dynamic_image_size: bool = False
    """Take images of any size that patches divide, not only of image_size, and padded batches of patches
    (`vit_config.images.patches.Patches`)."""
    rope: Rope | None = None
    """Rotary positions, applied to queries and keys in every block."""
    rel_pos_bias: bool = False
    """Each block adds a learned bias per head and relative position to the attention logits, as BEiT
    (arXiv 2106.08254)."""
    pre_norm: bool = False
    """Normalise the tokens once more before the first block, as CLIP does."""

    block: Literal["pre_norm", "res_post", "sandwich", "parallel"] = "pre_norm"
    """Norm before each branch; norm at the end of each branch (Swin V2, arXiv 2111.09883); at both ends
    (arXiv 2105.13290); or attention and MLP side by side behind one norm and one input projection
    (ViT-22B, arXiv 2302.05442)."""
    num_parallel: PositiveInt = 1
    """Attentions side by side, then as many MLPs, in each block (arXiv 2203.09795)."""
    attention: Literal["fused", "per_head", "differential"] = "fused"
    """One q, k, v projection of the whole width; one small projection per head that sees only the head's
    own slice (a block-diagonal projection); or fused, each head the difference of two attentions
    (arXiv 2410.05258)."""
    qkv_bias: bool = True
    """Whether the q, k, v projections have biases."""
    k_bias: bool = True
    """Whether keys have a bias where queries and values have one; BEiT and EVA leave it out."""
    qk_norm: bool = False
    """Normalise queries and keys of each head."""
    v_norm: bool = False
    """Normalise values of each head, without gain and bias."""
    attention_scale: PositiveFloat | None = None
    """Factor of the products of queries and keys; None means 1 / sqrt(width of a head)."""
    attention_norm: bool = False
    """Normalise the joined heads before the output projection (sub-LN, arXiv 2210.06423)."""
    attention_out_proj: bool = True
    """Project the concatenated heads once more."""
    attention_out_bias: bool = True
    """Whether that output projection has a bias."""
    mlp: Literal["mlp", "swiglu", "swiglu_packed"] = "mlp"
    """Two layers; or gated, act(gate(x)) * value(x) (arXiv 2002.05202), with gate and value projected by
    two layers or by one that holds the gate first."""
    act: Act = "gelu"
    """Activation of the MLP: exact (erf) GELU, its tanh approximation, x * sigmoid(1.702 x), SiLU or
    ReLU."""
    mlp_bias: bool = True
    """Whether the layers of the MLP have biases."""
    mlp_norm: bool = False
    """Normalise the hidden layer of the MLP before its last projection (sub-LN, arXiv 2210.06423)."""
    linear_bounds: bool = False
    """Clamp what goes into and comes out of each linear layer of a block to bounds, which stand beside
    its weights and which no training changes."""
    layer_scale: PositiveFloat | None = None
    """Initial gain of a learned per-channel scale on each residual branch (arXiv 2103.17239); None
    builds no scale. A res_post block has none: it is the initial gain of its norms."""
    layer_scale_on: Literal["both", "attention"] = "both"
    """Which residual branches have that scale."""

    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Kind of every normalisation layer."""
    norm_eps: PositiveFloat = 1e-6
    """Epsilon inside the square root of every normalisation layer."""
    final_norm: Literal["pre_pool", "post_pool", "none"] = "pre_pool"
    """Normalise all tokens after the last block, only the pooled vector, or nothing."""
    final_norm_affine: bool = True
    """Whether that norm has its gain and bias."""
    pool: Literal["class", "mean", "class_mean", "map", "soft"] = "class"
    """What the head sees: the class token; the mean of the patch tokens; the two joined, as DINOv2's
    classifier; the answer to a learned query (multihead attention pooling, arXiv 2106.04560); or, for a
    language model in place of a head, T tokens: means of squares of patches, times sqrt(D)."""
    pool_window: PositiveInt | None = None
    """Patches along the side of such a square."""
    pool_standardise: bool = False
    """Subtract a vector from each of the T tokens and multiply it by another, which no training
    changes."""
    pool_prefix: bool = False
    """Whether mean and attention pooling see the tokens before the patches too."""
    pool_num_heads: PositiveInt | None = None
    """Heads of attention pooling; None means num_heads."""
    pool_mlp_dim: PositiveInt | None = None
    """Hidden width of the MLP of attention pooling; None means mlp_dim."""
    head_hidden: PositiveInt | None = None
    """Width of a linear layer with tanh before the head (the representation of arXiv 2010.11929, section
    3.1); None builds none."""
    head_bias: bool = True
    """Whether the head has a bias."""
    head_activation: Literal["none", "softmax"] = "none"
    """What is applied to the head's output inside the model."""

    dropout_embed: Rate = 0.0
    """Dropout on the tokens after positions are added."""
    dropout_patch: Rate = 0.0
    """Share of the patch tokens that each image loses before the first block (arXiv 2212.00794)."""
    dropout_attention: Rate = 0.0
    """Dropout on the attention weights."""
    dropout_attention_out: Rate = 0.0
    """Dropout on the output of each attention layer."""
    dropout_mlp_inner: Rate = 0.0
    """Dropout after the activation of each MLP."""
    dropout_mlp_outer: Rate = 0.0
    """Dropout on the output of each MLP."""
    dropout_head: Rate = 0.0
    """Dropout on what the head sees."""
    stochastic_depth: Rate = 0.0
    """Rate at which the last block's residual branches are skipped per image (arXiv 1603.09382); it
    grows linearly from 0 at the first block."""

    init: Init = "timm"
    """Recipe of the initial values; see `vit_config.init`."""

    @property
    def grid(self) -> tuple[int, int]:
        """Patches per column and per row of the configured image."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def table_grid(self) -> tuple[int, int]:
        """Rows and columns of a learned position table."""
        return self.pos_embed_grid or self.grid

    @property
    def table_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the learned position tables, by name; none where positions are not learned."""
        (rows, columns), D = self.table_grid, self.hidden_size
        if self.pos_embed == "factorized":
            return {"pos_embed_y": (1, rows, D), "pos_embed_x": (1, columns, D)}
        learned = self.pos_embed == "learned"
        return {"pos_embed": (1, self.num_prefix_rows + rows * columns, D)} if learned else {}

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
        """Tokens P before the patches: class token, distillation token, registers."""
        return int(self.class_token) + int(self.distill_token) + self.register_tokens

    @property
    def head_tokens(self) -> int | None:
        """Number of first tokens that the head reads; None if it reads all, as for a mean."""
        return 1 + self.distill_token if self.pool == "class" else None

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
        return self.attention_head_dim or self.hidden_size // self.num_heads

    @property
    def attention_width(self) -> int:
        """Width h d of all heads joined."""
        return self.num_heads * self.head_dim

    @property
    def kv_heads(self) -> tuple[int, ...]:
        """Heads of keys and values of each block."""
        heads = self.num_kv_heads or self.num_heads
        return heads if isinstance(heads, tuple) else (heads,) * self.depth

    @property
    def pool_mlp(self) -> ViTConfig:
        """The schema of the MLP of attention pooling: plain, with biases, whatever the blocks have."""
        return ViTConfig(
            hidden_size=self.hidden_size,
            num_heads=1,
            mlp_dim=self.pool_mlp_dim or self.mlp_dim,
            act=self.act,
        )

    @property
    def head_inputs(self) -> int:
        """Width of the pooled vector: the input of the head, or of the tanh layer before it."""
        return self.hidden_size * (2 if self.pool == "class_mean" else 1)

    @property
    def num_logits(self) -> int:
        """Width of the logits, or of the head's input if there is no head."""
        return self.num_classes or self.head_hidden or self.head_inputs

    @property
    def block_drop_rates(self) -> tuple[float, ...]:
        """Stochastic-depth rate of each block."""
        steps = max(self.depth - 1, 1)
        return tuple(self.stochastic_depth * i / steps for i in range(self.depth))

    def grid_of(self, height: int, width: int) -> tuple[int, int]:
        """Return the patches per column and per row of an image that `check_image` let pass."""
        return height // self.patch_size[0], width // self.patch_size[1]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := list(contradictions(self)):
            raise ValueError("; ".join(problems))
        return self
