"""keras_vit classifying the mean token."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from keras_vit import build, load  # first: it picks the backend
from keras import layers

from draw import to_jax
from timm_vit import checkpoint, images


def side_wrong():
    pool = layers.GlobalAveragePooling1D()
    model = load(build(pool=lambda x: pool(x)), checkpoint())  # !wrong
    return (lambda x: model(x, training=False)), (to_jax(images()),)


def side_right():
    pool = layers.GlobalAveragePooling1D()
    model = load(build(pool=lambda x: pool(x[:, 1:])), checkpoint())
    return (lambda x: model(x, training=False)), (to_jax(images()),)
