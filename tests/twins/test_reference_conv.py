"""Interchangeable parts: two patch embeddings, smaller images, attention weights, fast kernels."""

import jax
import numpy as np
import pytest
import torch
from flax import nnx
from torch.nn import functional as F

import vit_torch
import vit_torch.attention
from tests.support.originals import Convolutional
from tests.support.peers import (
    EXACT,
    call_jax,
    nchw,
    random_images,
    redrawn,
    run_both,
    run_jax,
    run_torch,
)
from tests.support.tiny import TINY, error
from vit_config import InputError, preset
from vit_config.init import Draw, initial_draws

PRESET = preset("mnist_conv_vit")
CFG = PRESET.replace(  # the same switches where no two sizes agree
    image_size=(21, 15), patch_size=(7, 5), in_channels=3, hidden_size=30, depth=2, num_heads=5,
    mlp_dim=44, num_classes=11,
)  # fmt: skip
LINEAR = CFG.replace(patch_embed="linear_hwc")
FAST = {"jax": "xla", "torch": "sdpa"}
RUN = {"jax": run_jax, "torch": run_torch}
TWINS = ("jax", "torch")


def patch_tokens(cfg, arrays, images) -> dict[str, np.ndarray]:
    """What both twins' patch embeddings give."""
    return {
        "jax": call_jax(cfg, arrays, lambda model, x: model.patch_embed(x), images),
        "torch": vit_torch.from_arrays(cfg, arrays).patch_embed(nchw(images)).detach().numpy(),
    }


def linear_embedding(images: np.ndarray, patch, weight, bias) -> np.ndarray:
    """'b c (h ph) (w pw) -> b (h w) (ph pw c)', then a linear layer, by torch's unfold."""
    x = F.unfold(nchw(images), patch, stride=patch)  # (B, C * ph * pw, N), channels outermost
    x = x.unflatten(1, (images.shape[-1], -1)).transpose(1, 2).flatten(1, 2)  # channels innermost
    return F.linear(x.transpose(1, 2), torch.tensor(weight), torch.tensor(bias)).numpy()


def convolution(images: np.ndarray, patch, weight, bias) -> np.ndarray:
    """A convolution whose windows do not overlap, one window at a time, row by row."""
    x, (ph, pw) = images.transpose(0, 3, 1, 2), patch
    tokens = [
        np.einsum("bchw,dchw->bd", x[:, :, i : i + ph, j : j + pw], weight) + bias
        for i in range(0, x.shape[2], ph)
        for j in range(0, x.shape[3], pw)
    ]
    return np.stack(tokens, axis=1)


@torch.no_grad()
def encoder_classifier(cfg, arrays, images) -> torch.Tensor:
    """The whole model out of torch's own layers: logits."""
    return Convolutional(cfg).load(arrays)(nchw(images))


def test_the_linear_patch_embedding():
    arrays, images = redrawn(LINEAR), random_images(LINEAR)
    expected = linear_embedding(
        images, (7, 5), arrays["patch_embed.proj.weight"], arrays["patch_embed.proj.bias"]
    )
    for twin, tokens in patch_tokens(LINEAR, arrays, images).items():
        assert error(tokens, expected) <= EXACT, twin


def test_the_convolutional_patch_embedding():
    arrays, images = redrawn(CFG), random_images(CFG)
    expected = convolution(
        images, (7, 5), arrays["patch_embed.proj.weight"], arrays["patch_embed.proj.bias"]
    )
    for twin, tokens in patch_tokens(CFG, arrays, images).items():
        assert error(tokens, expected) <= EXACT, twin


@pytest.mark.parametrize("order", ["hwc", "chw"])
def test_the_two_embeddings_are_one_function_of_permuted_weights(order):
    arrays, images = redrawn(CFG), random_images(CFG)
    kernel = arrays["patch_embed.proj.weight"]  # (D, C, ph, pw)
    kernel = kernel.transpose(0, 2, 3, 1) if order == "hwc" else kernel
    linear = {**arrays, "patch_embed.proj.weight": kernel.reshape(len(kernel), -1)}
    convolved = patch_tokens(CFG, arrays, images)
    projected = patch_tokens(CFG.replace(patch_embed=f"linear_{order}"), linear, images)
    for twin in TWINS:
        assert error(projected[twin], convolved[twin]) <= EXACT, twin


@pytest.mark.parametrize("cfg", [PRESET, CFG], ids=["preset", "uneven"])
def test_the_whole_forward(cfg):
    arrays, images = redrawn(cfg), random_images(cfg)
    expected = encoder_classifier(cfg, arrays, images)
    for twin, output in run_both(cfg, arrays, images).items():
        assert error(output.logits, expected) <= EXACT, twin


@pytest.mark.parametrize("size", [(14, 10), (7, 45)])
def test_a_smaller_image_uses_the_leading_rows(size):
    arrays = redrawn(CFG)
    smaller = CFG.replace(image_size=size)
    leading = {**arrays, "pos_embed": arrays["pos_embed"][:, : 1 + smaller.num_patches]}
    images = random_images(smaller)
    expected = encoder_classifier(smaller, leading, images)
    for twin, output in run_both(CFG, arrays, images).items():
        assert output.patch_tokens.shape == (2, smaller.num_patches, 30)
        assert error(output.logits, expected) <= EXACT, twin


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("size", "patches"), [((28, 15), 12), ((21, 20), 12), ((7, 50), 10)])
def test_a_longer_sequence_is_an_error(twin, size, patches):
    images = random_images(CFG.replace(image_size=size))
    message = (
        rf"the image is {size[0]}x{size[1]} and has {patches} patches.*grid 3x3 has 9; use a smaller"
    )
    with pytest.raises(InputError, match=message):
        RUN[twin](CFG, redrawn(CFG), images)


@pytest.mark.parametrize("twin", TWINS)
def test_a_smaller_image_is_still_cut_into_whole_patches(twin):
    images = np.zeros((1, 14, 11, 3))
    with pytest.raises(InputError, match=r"14x11, not divisible by patch_size = \(7, 5\)"):
        RUN[twin](CFG, redrawn(CFG), images)


def test_attention_weights_of_every_layer_and_head():
    arrays, images = redrawn(CFG), random_images(CFG)
    outputs = run_both(CFG, arrays, images, return_attention=True, return_blocks=True)
    blocks = Convolutional(CFG).load(arrays).blocks
    for output in outputs.values():
        assert len(output.attention) == 2
        for i, weights in enumerate(output.attention):
            assert weights.shape == (2, 5, 10, 10)
            assert (weights >= 0).all()
            np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-14)
            if i:  # the average over heads is what torch's own module returns
                x = blocks[i].norm1(torch.tensor(output.blocks[i - 1]))
                _, mean = blocks[i].attention(x, x, x)
                assert error(weights.mean(1), mean.detach()) <= EXACT
    for ours, twin in zip(outputs["torch"].attention, outputs["jax"].attention, strict=True):
        assert error(twin, ours) <= EXACT


@pytest.mark.parametrize("twin", TWINS)
def test_attention_weights_and_blocks_are_off_by_default(twin):
    arrays, images = redrawn(CFG), random_images(CFG)
    output = RUN[twin](CFG, arrays, images)
    assert output.attention is None
    assert output.blocks is None
    watched = RUN[twin](CFG, arrays, images, return_attention=True, return_blocks=True)
    np.testing.assert_array_equal(watched.logits, output.logits)
    assert [block.shape for block in watched.blocks] == [(2, 10, 30)] * 2


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("attention", ["fused", "per_head"])
def test_a_fast_kernel_equals_the_reference(twin, attention):
    cfg = CFG.replace(attention=attention)
    arrays = {name: array.astype(np.float32) for name, array in redrawn(cfg).items()}
    images = random_images(cfg).astype(np.float32)
    reference = RUN[twin](cfg, arrays, images)
    fast = RUN[twin](cfg, arrays, images, kernel=FAST[twin])
    for name in ("logits", "patch_tokens"):
        value, expected = getattr(fast, name), getattr(reference, name)
        assert value.dtype == np.float32
        assert error(value, expected) <= 8 * np.finfo(np.float32).eps, name


@pytest.mark.parametrize("twin", TWINS)
def test_a_fast_kernel_has_no_attention_weights(twin):
    kernel = FAST[twin]
    with pytest.raises(InputError, match=r"return_attention = True .* the model's kernel never forms"):
        RUN[twin](CFG, redrawn(CFG), random_images(CFG), kernel=kernel, return_attention=True)


def test_a_fast_kernel_cannot_drop_attention_weights():
    cfg = CFG.replace(dropout_attention=0.25)
    message = "cannot drop attention weights, but dropout_attention = 0.25; use kernel"
    arrays, images = redrawn(cfg), random_images(cfg)
    training = vit_torch.from_arrays(cfg, arrays, kernel="sdpa").train()
    with pytest.raises(InputError, match=f"'sdpa' {message}"):
        training(nchw(images))
    with pytest.raises(InputError, match=f"'xla' {message}"):
        call_jax(
            cfg,
            arrays,
            lambda model, x: model(x, rngs=nnx.Rngs(dropout=jax.random.key(0))),
            images,
            kernel="xla",
        )
    for twin in TWINS:  # without dropout, outside training, it is as good as any
        RUN[twin](cfg, arrays, images, kernel=FAST[twin])


@pytest.mark.parametrize(("twin", "kernels"), [("jax", "xla, cudnn"), ("torch", "sdpa")])
def test_an_unknown_kernel_is_an_error(twin, kernels):
    with pytest.raises(InputError, match=f"kernel = 'flash'.* are auto, reference, {kernels}"):
        RUN[twin](TINY, redrawn(TINY), random_images(TINY), kernel="flash")


def test_tokens_and_positions_start_standard_normal():
    parts = vit_torch.leaves.leaves(vit_torch.weights.abstract_model(PRESET))
    draws = initial_draws(
        PRESET, {leaf.name: leaf.kind for leaf in parts}, {leaf.name: leaf.shape for leaf in parts}
    )
    assert draws["cls_token"] == draws["pos_embed"] == (Draw("normal", 0.0, 1.0),)
    torch.manual_seed(0)
    fresh = vit_torch.to_arrays(vit_torch.ViT(PRESET))["pos_embed"]
    assert abs(fresh.std() - 1) < 0.05
    assert abs(fresh.mean()) < 0.05
