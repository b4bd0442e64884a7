"""ResNet of timm (arXiv 1512.03385) in NNX, channels last."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from evidence.families.drawn import channels_last, drawn, given, kernel, normal, weights, within

IMAGES = normal(3, 3, 37, 29)


def original():
    from timm.models.resnet import Bottleneck, ResNet

    block: Any = Bottleneck
    model = ResNet(block, layers=(1, 2, 1, 1), channels=(5, 7, 3, 2), stem_width=11, num_classes=13)
    return drawn(model), (IMAGES,)


def port(model):
    net = ResNet(weights(model))
    net.eval()
    return net, (channels_last(IMAGES),)


def conv(weight, stride=1):
    outside, inside, size, _ = weight.shape
    return nnx.Conv(inside, outside, (size, size), stride, padding=size // 2, use_bias=False,
                    kernel_init=given(kernel(weight)), rngs=nnx.Rngs(0))  # fmt: skip


def batch_norm(w):
    layer = nnx.BatchNorm(len(w["bias"]), momentum=0.9, epsilon=1e-5, scale_init=given(w["weight"]),
                          bias_init=given(w["bias"]), rngs=nnx.Rngs(0))  # fmt: skip
    layer.mean[...], layer.var[...] = jnp.asarray(w["running_mean"]), jnp.asarray(w["running_var"])
    return layer


class Bottleneck(nnx.Module):
    def __init__(self, w, stride):
        self.conv1, self.conv3 = conv(w["conv1.weight"]), conv(w["conv3.weight"])
        self.conv2 = conv(w["conv2.weight"], stride)
        self.bn1, self.bn2, self.bn3 = (batch_norm(within(w, f"bn{i}.")) for i in (1, 2, 3))
        self.projects = "downsample.0.weight" in w
        if self.projects:
            self.project = conv(w["downsample.0.weight"], stride)
            self.project_norm = batch_norm(within(w, "downsample.1."))

    def __call__(self, x):
        y = nnx.relu(self.bn1(self.conv1(x)))
        y = nnx.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        if self.projects:
            x = self.project_norm(self.project(x))
        return nnx.relu(x + y)


class ResNet(nnx.Module):
    def __init__(self, w):
        self.stem, self.stem_norm = conv(w["conv1.weight"], 2), batch_norm(within(w, "bn1."))
        blocks = sorted({tuple(name.split(".")[:2]) for name in w if name.startswith("layer")})
        self.blocks = nnx.List(
            Bottleneck(within(w, f"{stage}.{i}."), 2 if stage != "layer1" and i == "0" else 1)
            for stage, i in blocks
        )
        self.head = nnx.Linear(*w["fc.weight"].T.shape, kernel_init=given(w["fc.weight"].T),
                               bias_init=given(w["fc.bias"]), rngs=nnx.Rngs(0))  # fmt: skip

    def __call__(self, x):
        x = nnx.relu(self.stem_norm(self.stem(x)))
        x = jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
        )
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2)))
