"""The timm ViT in Flax NNX with nnx.MultiHeadAttention."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax.numpy as jnp
from flax import nnx

from draw import to_jax
from timm_vit import CLASSES, GRID, HEADS, HIDDEN, PATCH, WIDTH, checkpoint, images


class EncoderBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm1 = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.fc1 = nnx.Linear(WIDTH, HIDDEN, rngs=rngs)
        self.fc2 = nnx.Linear(HIDDEN, WIDTH, rngs=rngs)

    def act(self, x):
        return nnx.gelu(x, approximate=False)

    def __call__(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class ViT(nnx.Module):
    def __init__(self, rngs, depth=3, block=EncoderBlock):
        self.stem = nnx.Conv(3, WIDTH, (PATCH, PATCH), strides=(PATCH, PATCH), padding="VALID", rngs=rngs)
        self.cls = nnx.Param(jnp.ones((1, 1, WIDTH)))
        self.pos = nnx.Param(jnp.ones((1, 1 + GRID[0] * GRID[1], WIDTH)))
        self.blocks = nnx.List([block(rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-6, rngs=rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def embed(self, x):
        x = self.stem(x.transpose(0, 2, 3, 1))
        return x.reshape(x.shape[0], -1, WIDTH)

    def __call__(self, x):
        x = self.embed(x)
        cls = jnp.tile(self.cls[...], (x.shape[0], 1, 1))
        x = jnp.concatenate([cls, x], axis=1) + self.pos[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def load(model, sd):
    put = lambda var, value: var.set_value(jnp.asarray(value))

    def linear(layer, name):
        put(layer.kernel, sd[name + ".weight"].T)
        put(layer.bias, sd[name + ".bias"])

    def norm(layer, name):
        put(layer.scale, sd[name + ".weight"])
        put(layer.bias, sd[name + ".bias"])

    put(model.stem.kernel, sd["patch_embed.proj.weight"].transpose(2, 3, 1, 0))
    put(model.stem.bias, sd["patch_embed.proj.bias"])
    put(model.cls, sd["cls_token"])
    put(model.pos, sd["pos_embed"])
    for i, block in enumerate(model.blocks):
        pre = f"blocks.{i}."
        norm(block.norm1, pre + "norm1")
        norm(block.norm2, pre + "norm2")
        linear(block.fc1, pre + "mlp.fc1")
        linear(block.fc2, pre + "mlp.fc2")
        w = sd[pre + "attn.qkv.weight"].reshape(3, HEADS, -1, WIDTH)
        b = sd[pre + "attn.qkv.bias"].reshape(3, HEADS, -1)
        for j, part in enumerate((block.attn.query, block.attn.key, block.attn.value)):
            put(part.kernel, w[j].transpose(2, 0, 1))
            put(part.bias, b[j])
        put(block.attn.out.kernel, sd[pre + "attn.proj.weight"].T.reshape(HEADS, -1, WIDTH))
        put(block.attn.out.bias, sd[pre + "attn.proj.bias"])
    norm(model.norm, "norm")
    linear(model.head, "head")
    return model


def side_nnx():
    return load(ViT(nnx.Rngs(0)), checkpoint()), (to_jax(images()),)
