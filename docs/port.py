"""A ViT ported by hand from PyTorch to Flax: an example for `parity diff`."""

from functools import partial
from typing import Any

import numpy as np

IMAGES = np.random.default_rng(0).standard_normal((2, 21, 15, 3))  # (B, H, W, C)
PATCH, WIDTH, HEADS, DEPTH, HIDDEN, CLASSES = (7, 5), 30, 5, 3, 44, 11


def original() -> tuple[Any, Any]:
    """The model in PyTorch, and its input."""
    import torch

    from vit_config import ViTConfig
    from vit_torch import ViT

    class Classifier(ViT):
        def forward(self, images):
            return super().forward(images).logits

    torch.manual_seed(0)
    model = Classifier(
        ViTConfig(
            image_size=IMAGES.shape[1:3],
            patch_size=PATCH,
            hidden_size=WIDTH,
            depth=DEPTH,
            num_heads=HEADS,
            mlp_dim=HIDDEN,
            num_classes=CLASSES,
        )
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model, torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


def port(*, exact_gelu: bool = False) -> tuple[Any, Any, Any]:
    """The port in Flax's Linen, its variables, and its input."""
    import jax
    from flax import linen as nn

    class Attention(nn.Module):
        @nn.compact
        def __call__(self, x):
            q, k, v = (self.heads(nn.Dense(WIDTH, name=name)(x)) for name in ("query", "key", "value"))
            weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(WIDTH // HEADS), axis=-1)
            y = (weights @ v).swapaxes(1, 2)  # (B, N, h, d)
            return nn.Dense(WIDTH, name="out")(y.reshape(x.shape))

        def heads(self, x):
            return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)  # (B, h, N, d)

    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(HIDDEN, name="wide")(x)
            return nn.Dense(WIDTH, name="narrow")(nn.gelu(x, approximate=not exact_gelu))

    class EncoderBlock(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = x + Attention(name="attention")(nn.LayerNorm(name="before_attention")(x))
            return x + Mlp(name="mlp")(nn.LayerNorm(name="before_mlp")(x))

    class VisionTransformer(nn.Module):
        @nn.compact
        def __call__(self, images):
            x = nn.Conv(WIDTH, PATCH, PATCH, padding="VALID", name="embedding")(images)
            x = x.reshape(len(x), -1, WIDTH)
            cls = self.param("cls", nn.initializers.zeros, (1, 1, WIDTH))
            x = jax.numpy.concatenate([jax.numpy.tile(cls, (len(x), 1, 1)), x], axis=1)
            x = x + self.param("positions", nn.initializers.zeros, (1, x.shape[1], WIDTH))
            for i in range(DEPTH):
                x = EncoderBlock(name=f"block_{i}")(x)
            return nn.Dense(CLASSES, name="head")(nn.LayerNorm(name="encoder_norm")(x)[:, 0])

    return VisionTransformer(), {"params": ported(original()[0].state_dict())}, IMAGES


corrected = partial(port, exact_gelu=True)


def ported(state: Any) -> dict[str, Any]:
    """PyTorch's parameters in Flax's names and layouts."""
    arrays = {name: tensor.numpy() for name, tensor in state.items()}

    def dense(name: str, part: slice = slice(None)) -> dict[str, np.ndarray]:
        return {"kernel": arrays[f"{name}.weight"][part].T, "bias": arrays[f"{name}.bias"][part]}

    def norm(name: str) -> dict[str, np.ndarray]:
        return {"scale": arrays[f"{name}.weight"], "bias": arrays[f"{name}.bias"]}

    def block(name: str) -> dict[str, Any]:
        thirds = {"query": 0, "key": 1, "value": 2}
        qkv = {
            each: dense(f"{name}.attn.qkv", slice(i * WIDTH, (i + 1) * WIDTH))
            for each, i in thirds.items()
        }
        return {
            "before_attention": norm(f"{name}.norm1"),
            "attention": {**qkv, "out": dense(f"{name}.attn.proj")},
            "before_mlp": norm(f"{name}.norm2"),
            "mlp": {"wide": dense(f"{name}.mlp.fc1"), "narrow": dense(f"{name}.mlp.fc2")},
        }

    kernel = arrays["patch_embed.proj.weight"].transpose(2, 3, 1, 0)  # OIHW to HWIO
    return {
        "embedding": {"kernel": kernel, "bias": arrays["patch_embed.proj.bias"]},
        "cls": arrays["cls_token"],
        "positions": arrays["pos_embed"],
        **{f"block_{i}": block(f"blocks.{i}") for i in range(DEPTH)},
        "encoder_norm": norm("norm"),
        "head": dense("head"),
    }
