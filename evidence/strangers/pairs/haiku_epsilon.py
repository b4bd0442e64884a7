"""haiku_vit with norms as the library gives them."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import haiku as hk

from draw import to_jax
from haiku_vit import Block, load, network
from timm_vit import checkpoint, images


class PlainBlock(Block):
    def norm(self, x, name):
        return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True, name=name)(x)  # !wrong


def side_wrong():
    net = hk.without_apply_rng(hk.transform(lambda x: network(x, block=PlainBlock)))
    return net.apply, (load(checkpoint()), to_jax(images()))
