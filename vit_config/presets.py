"""Named schemas: the embedded example, five well-known ways to write a ViT, and its plain sizes."""

from __future__ import annotations

import difflib

from vit_config.errors import ConfigError
from vit_config.schema import ViTConfig

_PLAIN = {  # hidden_size, depth, num_heads, mlp_dim, patch_size: arXiv 2010.11929 table 1, 2012.12877
    "vit_tiny_patch16_224": (192, 12, 3, 768, 16),
    "vit_small_patch16_224": (384, 12, 6, 1536, 16),
    "vit_base_patch16_224": (768, 12, 12, 3072, 16),
    "vit_large_patch16_224": (1024, 24, 16, 4096, 16),
    "vit_huge_patch14_224": (1280, 32, 16, 5120, 14),
}


def _plain(hidden_size: int, depth: int, num_heads: int, mlp_dim: int, patch_size: int) -> ViTConfig:
    return ViTConfig(
        hidden_size=hidden_size,
        depth=depth,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        patch_size=(patch_size, patch_size),
    )


_FROM_SCRATCH = ViTConfig(
    # Modular: cut patches -> LayerNorm -> Linear -> LayerNorm; every matrix drawn Xavier-normal.
    hidden_size=512,
    depth=6,
    num_heads=8,
    mlp_dim=2048,
    patch_embed="linear_hwc",
    patch_input_norm=True,
    patch_norm=True,
    pos_embed_resize="leading_rows",
    norm_eps=1e-5,
    dropout_embed=0.1,
    dropout_attention=0.1,
    dropout_attention_out=0.1,
    dropout_mlp_inner=0.1,
    dropout_mlp_outer=0.1,
    init="xavier_normal",
)

PRESETS: dict[str, ViTConfig] = {
    "digits": ViTConfig(
        # The embedded example: scikit-learn's 8 x 8 digits, cut into four upright strips, which do
        # better in cross-validation than smaller or squarer patches (docs/digits.md).
        image_size=(8, 8),
        patch_size=(8, 2),
        in_channels=1,
        hidden_size=64,
        depth=4,
        num_heads=4,
        mlp_dim=128,
        num_classes=10,
    ),
    "mnist_exercise": ViTConfig(
        # As small as a ViT gets: each head projects its own slice, no output projection, no final norm,
        # and a softmax inside the model that the loss is then applied to.
        image_size=(28, 28),
        patch_size=(4, 4),
        in_channels=1,
        hidden_size=8,
        depth=2,
        num_heads=2,
        mlp_dim=32,
        num_classes=10,
        patch_embed="linear_chw",
        pos_embed="sincos1d",
        attention="per_head",
        attention_out_proj=False,
        attention_out_bias=False,
        norm_eps=1e-5,
        final_norm="none",
        head_activation="softmax",
        init="torch_uniform_tokens",
    ),
    "mnist_conv_vit": ViTConfig(
        # A small convolutional-patch ViT that takes any image up to 28 x 28.
        image_size=(28, 28),
        patch_size=(4, 4),
        in_channels=1,
        hidden_size=64,
        depth=4,
        num_heads=4,
        mlp_dim=128,
        num_classes=10,
        pos_embed_resize="leading_rows",
        norm_eps=1e-5,
        init="torch",
    ),
    "vit_paper": ViTConfig(
        # The paper equation by equation, on torch's attention module: its head is LayerNorm + Linear.
        norm_eps=1e-5,
        final_norm="post_pool",
        dropout_embed=0.1,
        dropout_mlp_inner=0.1,
        dropout_mlp_outer=0.1,
        init="torch_mha",
    ),
    "vit_from_scratch": _FROM_SCRATCH,
    "vit_from_scratch_large": _FROM_SCRATCH.replace(
        hidden_size=1024, depth=24, num_heads=16, mlp_dim=4096
    ),
    **{name: _plain(*sizes) for name, sizes in _PLAIN.items()},
}


def preset(name: str) -> ViTConfig:
    """The schema called `name`.

    Raises:
        ConfigError: there is no such preset.
    """
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "the presets are " + ", ".join(sorted(PRESETS))
    raise ConfigError(f"no preset is called {name!r}; {hint}")
