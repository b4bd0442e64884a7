"""The modular model: normed patch projection, pool by class token or mean, three things returned."""

import math

import jax
import numpy as np
import pytest
import torch
from torch import nn

import vit_jax.weights
import vit_torch
import vit_torch.weights
from tests.support.peers import EXACT, random_images, redrawn, run_both, run_jax, run_torch
from tests.support.tiny import error
from vit_config import InputError, preset
from vit_config.init import Draw, initial_draws
from vit_jax.functional import get_params, make_apply, make_merge
from vit_jax.leaves import count_parameters

DEFAULT = preset("vit_from_scratch")
LARGE = preset("vit_from_scratch_large")
SMALL = DEFAULT.replace(
    image_size=(21, 15), patch_size=(7, 5), hidden_size=30, depth=2, num_heads=5, mlp_dim=44,
    num_classes=11,
)  # fmt: skip
POOLED = {"class": SMALL, "mean": SMALL.replace(pool="mean")}


class Scratch(nn.Module):
    """The model from its description; `forward` gives class vector, patch map and logits."""

    def __init__(self, width: int, depth: int, heads: int, inner: int, patch_values: int, classes: int):
        super().__init__()
        self.heads = heads
        self.embed = nn.Sequential(
            nn.LayerNorm(patch_values), nn.Linear(patch_values, width), nn.LayerNorm(width)
        )
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "ffn": nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)),
                }
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def load(self, arrays: dict) -> "Scratch":
        names = {"embed.0": "patch_embed.norm_in", "embed.1": "patch_embed.proj",
                 "embed.2": "patch_embed.norm", "norm": "norm", "head": "head"}  # fmt: skip
        inside = {"norm1": "norm1", "qkv": "attn.qkv", "out": "attn.proj", "norm2": "norm2",
                  "ffn.0": "mlp.fc1", "ffn.2": "mlp.fc2"}  # fmt: skip
        for i in range(len(self.layers)):
            names.update({f"layers.{i}.{a}": f"blocks.{i}.{b}" for a, b in inside.items()})
        self.double().load_state_dict(
            {
                f"{theirs}.{leaf}": torch.tensor(arrays[f"{ours}.{leaf}"])
                for theirs, ours in names.items()
                for leaf in ("weight", "bias")
            }
        )
        self.token, self.positions = (torch.tensor(arrays[n]) for n in ("cls_token", "pos_embed"))
        return self

    def attend(self, layer, x):
        B, N, D = x.shape
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in layer["qkv"](x).split(D, 2))
        weights = (q @ k.mT / math.sqrt(D / self.heads)).softmax(-1)
        return layer["out"]((weights @ v).transpose(1, 2).reshape(B, N, D))

    @torch.no_grad()
    def forward(self, images: np.ndarray, patch: tuple[int, int], pool: str):
        (ph, pw), (B, H, W, _) = patch, images.shape
        cut = [
            images[:, i : i + ph, j : j + pw].reshape(B, -1)  # '(ph pw c)'
            for i in range(0, H, ph)
            for j in range(0, W, pw)
        ]
        x = self.embed(torch.tensor(np.stack(cut, axis=1)))
        P = x.shape[1]
        x = torch.cat((self.token.expand(B, 1, -1), x), dim=1) + self.positions[:, : P + 1]
        for layer in self.layers:
            x = x + self.attend(layer, layer["norm1"](x))
            x = x + layer["ffn"](layer["norm2"](x))
        x = self.norm(x)
        class_vector, patches = x[:, 0], x[:, 1:]
        pooled = class_vector if pool == "class" else patches.mean(1)
        return class_vector, patches, self.head(pooled)


def reference(cfg, arrays: dict) -> Scratch:
    sizes = (cfg.hidden_size, cfg.depth, cfg.num_heads, cfg.mlp_dim, cfg.patch_dim, cfg.num_classes)
    return Scratch(*sizes).load(arrays)


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_the_whole_forward_and_the_three_things_it_returns(pool):
    cfg = POOLED[pool]
    arrays, images = redrawn(cfg), random_images(cfg)
    class_vector, patches, logits = reference(cfg, arrays)(images, (7, 5), pool)
    for twin, output in run_both(cfg, arrays, images).items():
        assert output.prefix_tokens.shape == (2, 1, 30)
        assert output.patch_tokens.shape == (2, 9, 30)
        assert output.logits.shape == (2, 11)
        assert error(output.prefix_tokens[:, 0], class_vector) <= EXACT, twin
        assert error(output.patch_tokens, patches) <= EXACT, twin
        assert error(output.logits, logits) <= EXACT, twin
        expected = class_vector if pool == "class" else patches.mean(1)
        assert error(output.pooled, expected) <= EXACT, twin


def test_a_smaller_image_uses_the_leading_rows():
    arrays = redrawn(SMALL)
    images = random_images(SMALL.replace(image_size=(14, 10)))
    class_vector, patches, logits = reference(SMALL, arrays)(images, (7, 5), "class")
    for twin, output in run_both(SMALL, arrays, images).items():
        assert error(output.prefix_tokens[:, 0], class_vector) <= EXACT, twin
        assert error(output.patch_tokens, patches) <= EXACT, twin
        assert error(output.logits, logits) <= EXACT, twin


@pytest.mark.parametrize("run", [run_jax, run_torch], ids=["jax", "torch"])
def test_a_larger_image_is_an_error(run):
    with pytest.raises(InputError, match=r"28x15 and has 12 patches.*grid 3x3 has 9"):
        run(SMALL, redrawn(SMALL), random_images(SMALL.replace(image_size=(28, 15))))


def test_the_default_encoder_keeps_its_shape():
    def encode(params, x):
        for block in make_merge(DEFAULT)(params).blocks:
            x, _ = block(x)
        return x

    tokens = jax.ShapeDtypeStruct((16, 128, 512), np.float32)
    params = get_params(vit_jax.weights.abstract_model(DEFAULT))
    assert jax.eval_shape(encode, params, tokens).shape == (16, 128, 512)
    x = torch.empty(16, 128, 512, device="meta")
    blocks = vit_torch.weights.abstract_model(DEFAULT).blocks
    assert len(blocks) == 6
    for block in blocks:
        x, _ = block(x)
    assert x.shape == (16, 128, 512)


def test_one_block_of_the_default_encoder():
    cfg = DEFAULT.replace(depth=1, image_size=(16, 32), num_classes=3)
    arrays = redrawn(cfg)
    torch.manual_seed(0)
    x = torch.randn(16, 128, 512)
    block = vit_torch.from_arrays(cfg, {k: v.astype(np.float32) for k, v in arrays.items()}).blocks[0]
    with torch.no_grad():
        y, _ = block(x)
    assert y.shape == (16, 128, 512)
    model = reference(cfg, arrays)
    layer = model.layers[0]
    with torch.no_grad():
        x = x.double()
        x = x + model.attend(layer, layer["norm1"](x))
        x = x + layer["ffn"](layer["norm2"](x))
    assert error(y, x) <= 1e-6


def test_large_has_304_330_216_parameters_and_its_shapes():
    ours, twin = vit_torch.weights.abstract_model(LARGE), vit_jax.weights.abstract_model(LARGE)
    assert vit_torch.count_parameters(ours) == 304_330_216
    assert count_parameters(twin) == 304_330_216
    images = jax.ShapeDtypeStruct((32, 224, 224, 3), np.float32)
    outputs = (
        ours.eval()(torch.empty(32, 3, 224, 224, device="meta")),
        jax.eval_shape(make_apply(LARGE), get_params(twin), images),
    )
    for output in outputs:
        assert tuple(output.prefix_tokens.shape) == (32, 1, 1024)
        assert tuple(output.pooled.shape) == (32, 1024)
        assert tuple(output.patch_tokens.shape) == (32, 196, 1024)
        assert tuple(output.logits.shape) == (32, 1000)


def test_every_tensor_with_two_dimensions_starts_xavier_normal():
    parts = vit_torch.leaves.leaves(vit_torch.weights.abstract_model(LARGE))
    shapes = {leaf.name: leaf.shape for leaf in parts}
    draws = initial_draws(LARGE, {leaf.name: leaf.kind for leaf in parts}, shapes)
    assert f"{draws['cls_token'][0].b:.3f}" == "0.031"
    assert f"{draws['pos_embed'][0].b:.4f}" == "0.0031"
    for name, shape in shapes.items():
        if len(shape) < 2:
            continue
        empty = torch.empty(shape, device="meta")
        fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(empty)
        std = math.sqrt(2 / (fan_in + fan_out))
        assert draws[name] == (Draw("normal", 0.0, pytest.approx(std)),), name
    bound = 1 / math.sqrt(4096)  # nn.Linear's default stays
    assert draws["blocks.0.mlp.fc2.bias"] == (Draw("uniform", -bound, bound),)
    assert draws["blocks.0.norm1.weight"] == (Draw("constant", 1.0),)


def test_dropout_is_everywhere():
    rates = {name: rate for name, rate in DEFAULT if name.startswith("dropout")}
    elsewhere = {"dropout_patch", "dropout_head"}  # what this model does not have
    assert {name for name, rate in rates.items() if rate == 0.0} == elsewhere
    assert {rate for name, rate in rates.items() if name not in elsewhere} == {0.1}
