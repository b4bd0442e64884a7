"""The timm ViT in dm-haiku; weights go in by module path."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import haiku as hk
import jax
import jax.numpy as jnp

from draw import to_jax
from timm_vit import CLASSES, GRID, HEADS, HIDDEN, PATCH, WIDTH, checkpoint, images


class Block(hk.Module):
    EPS = 1e-6

    def norm(self, x, name):
        return hk.LayerNorm(-1, True, True, eps=self.EPS, name=name)(x)

    def __call__(self, x):
        y = self.norm(x, "ln_1")
        x = x + hk.MultiHeadAttention(HEADS, WIDTH // HEADS, w_init=jnp.zeros, model_size=WIDTH, name="attn")(y, y, y)
        y = hk.Linear(HIDDEN, name="wide")(self.norm(x, "ln_2"))
        return x + hk.Linear(WIDTH, name="narrow")(jax.nn.gelu(y, approximate=False))


def network(x, block=Block, depth=3):
    x = hk.Conv2D(WIDTH, PATCH, PATCH, padding="VALID", data_format="NCHW", name="stem")(x)
    x = x.reshape(x.shape[0], WIDTH, -1).swapaxes(1, 2)
    cls = hk.get_parameter("cls", (1, 1, WIDTH), init=jnp.zeros)
    pos = hk.get_parameter("pos", (1, 1 + GRID[0] * GRID[1], WIDTH), init=jnp.zeros)
    x = jnp.concatenate([jnp.broadcast_to(cls, (x.shape[0], 1, WIDTH)), x], 1) + pos
    for i in range(depth):
        x = block(name=f"block{i}")(x)
    x = hk.LayerNorm(-1, True, True, eps=1e-6, name="ln")(x[:, 0])
    return hk.Linear(CLASSES, name="head")(x)


def load(sd, depth=3):
    linear = lambda n: {"w": sd[n + ".weight"].T, "b": sd[n + ".bias"]}
    norm = lambda n: {"scale": sd[n + ".weight"], "offset": sd[n + ".bias"]}
    p = {"~": {"cls": sd["cls_token"], "pos": sd["pos_embed"]},
         "stem": {"w": sd["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
                  "b": sd["patch_embed.proj.bias"][:, None, None]},
         "ln": norm("norm"), "head": linear("head")}
    for i in range(depth):
        b = f"blocks.{i}."
        p[f"block{i}/~norm/ln_1"], p[f"block{i}/~norm/ln_2"] = norm(b + "norm1"), norm(b + "norm2")
        fused = linear(b + "attn.qkv")
        for j, n in enumerate(("query", "key", "value")):
            part = slice(j * WIDTH, (j + 1) * WIDTH)
            p[f"block{i}/attn/{n}"] = {"w": fused["w"][:, part], "b": fused["b"][part]}
        p[f"block{i}/attn/linear"] = linear(b + "attn.proj")
        p[f"block{i}/wide"], p[f"block{i}/narrow"] = linear(b + "mlp.fc1"), linear(b + "mlp.fc2")
    return to_jax(p)


def side_haiku():
    net = hk.without_apply_rng(hk.transform(network))
    return net.apply, (load(checkpoint()), to_jax(images()))
