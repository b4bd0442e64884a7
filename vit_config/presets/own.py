"""Presets written by hand: the embedded example, and five well-known ways to write a ViT."""

from __future__ import annotations

from vit_config.schema import ViTConfig

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
    dynamic_image_size=True,
    norm_eps=1e-5,
    dropout_embed=0.1,
    dropout_attention=0.1,
    dropout_attention_out=0.1,
    dropout_mlp_inner=0.1,
    dropout_mlp_outer=0.1,
    init="xavier_normal",
)

OWN: dict[str, ViTConfig] = {
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
        dynamic_image_size=True,
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
}
