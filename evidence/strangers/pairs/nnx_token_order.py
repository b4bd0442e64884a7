"""nnx_vit with a stem that keeps the picture in width, height order."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from flax import nnx

from draw import to_jax
from nnx_vit import ViT, load
from timm_vit import WIDTH, checkpoint, images


class Model(ViT):
    def embed(self, x):
        x = self.stem(x.transpose(0, 2, 3, 1))
        return x.transpose(0, 2, 1, 3).reshape(x.shape[0], -1, WIDTH)  # !wrong


def side_wrong():
    return load(Model(nnx.Rngs(2)), checkpoint()), (to_jax(images()),)
