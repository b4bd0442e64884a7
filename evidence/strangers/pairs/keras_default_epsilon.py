"""keras_vit with plain LayerNormalization in the blocks."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from keras_vit import build, load  # first: it picks the backend
from keras import layers

from draw import to_jax
from timm_vit import checkpoint, images


def plain_norm(name):
    return layers.LayerNormalization(name=name)  # !wrong


def side_wrong():
    return load(build(plain_norm), checkpoint()), (to_jax(images()),)
