"""scan_vit with another block body."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jax
import jax.numpy as jnp

from draw import to_jax
from scan_vit import attention, convert, layer_norm, patches
from timm_vit import checkpoint, images


def encode(params, img):
    def body(carry, p):
        y = carry + attention(p, layer_norm(carry, *p["ln1"]))
        h = layer_norm(y, *p["ln2"]) @ p["up"][0] + p["up"][1]
        h = jax.nn.gelu(h, approximate=False) @ p["down"][0] + p["down"][1]
        return carry + h, None  # !wrong

    x = patches(img) @ params["stem"][0] + params["stem"][1]
    x = jnp.concatenate([params["cls"], x]) + params["pos"]
    x, _ = jax.lax.scan(body, x, params["blocks"])
    return layer_norm(x[0], *params["ln"]) @ params["head"][0] + params["head"][1]


def side_wrong():
    return jax.vmap(encode, in_axes=(None, 0)), (convert(checkpoint()), to_jax(images()))
