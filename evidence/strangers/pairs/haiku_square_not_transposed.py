"""haiku_vit with its own loader for the attention part."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import haiku as hk
import jax.numpy as jnp

from draw import to_jax
from haiku_vit import load, network
from timm_vit import WIDTH, checkpoint, images


def load_attention(params, sd, depth):
    params = dict(params)
    for i in range(depth):
        pre = f"blocks.{i}.attn."
        for n, w, b in zip(("query", "key", "value"),
                           sd[pre + "qkv.weight"].reshape(3, WIDTH, WIDTH), sd[pre + "qkv.bias"].reshape(3, WIDTH)):
            params[f"block{i}/attn/{n}"] = {"w": jnp.asarray(w.T), "b": jnp.asarray(b)}
        params[f"block{i}/attn/linear"] = {
            "w": jnp.asarray(sd[pre + "proj.weight"]),  # !wrong
            "b": jnp.asarray(sd[pre + "proj.bias"]),
        }
    return params


def side_wrong():
    sd = checkpoint()
    net = hk.without_apply_rng(hk.transform(network))
    params = load_attention(load(sd), sd, depth=3)
    return (lambda x: net.apply(params, x)), (to_jax(images()),)
