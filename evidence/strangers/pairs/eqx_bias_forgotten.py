"""hf_vit in Equinox with attention as the library makes it."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import equinox as eqx
import jax

from draw import to_jax
from hf_vit import D, H, Layer, ViT, load, pixels, weights


class PlainLayer(Layer):
    def __init__(self, key):
        super().__init__(key)
        self.attention = eqx.nn.MultiheadAttention(num_heads=H, query_size=D, key=key)  # !wrong


def side_wrong():
    model = load(ViT(jax.random.key(1), PlainLayer), weights())
    return eqx.filter_jit(eqx.filter_vmap(model)), (to_jax(pixels()),)
