"""nnx_vit whose blocks call nnx.gelu as it comes; the model is split and merged as for jit."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flax import nnx

from draw import to_jax
from nnx_vit import EncoderBlock, ViT, load
from timm_vit import checkpoint, images


class Block(EncoderBlock):
    def __call__(self, x):
        x = self.attn(self.norm1(x)) + x
        h = self.fc1(self.norm2(x))
        h = nnx.gelu(h)  # !wrong
        return self.fc2(h) + x


def side_wrong():
    graph, state = nnx.split(load(ViT(nnx.Rngs(1), block=Block), checkpoint()))
    return (lambda state, x: nnx.merge(graph, state)(x)), (state, to_jax(images()))
