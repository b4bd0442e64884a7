"""Images and labels that do not fit a model: one clear line each."""

import jax
import numpy as np
import pytest
import torch

import vit_jax.evaluate
import vit_torch.evaluate
from tests.support.peers import redrawn, run_jax, run_torch
from tests.support.refusals import one_line
from tests.support.tiny import TINY
from vit_config import InputError, Preprocess, write_weights
from vit_config.inputs import check_image

pytestmark = pytest.mark.quick

RUN = {"jax": run_jax, "torch": run_torch}
EVALUATE = {"jax": vit_jax.evaluate, "torch": vit_torch.evaluate}
SMALL = TINY.replace(depth=1)


@pytest.mark.parametrize("twin", RUN)
@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 21, 20, 3), ["the image is 21x20", "image_size = 21x15", "resize the image"]),
        ((2, 15, 21, 3), ["the image is 15x21", "image_size = 21x15"]),
        ((2, 21, 15, 1), ["1 channels", "in_channels = 3"]),
        ((2, 14, 10, 3), ["the image is 14x10", "image_size = 21x15"]),
    ],
)
def test_an_image_of_another_size_is_refused_at_call_time(twin, shape, words):
    with pytest.raises(InputError) as caught:
        RUN[twin](SMALL, redrawn(SMALL), np.zeros(shape))
    one_line(caught.value, *words)


@pytest.mark.parametrize(("height", "width"), [(0, 15), (21, 0), (3, 3)])
def test_an_image_smaller_than_a_patch_is_refused(height, width):
    with pytest.raises(InputError) as caught:
        check_image(SMALL.replace(dynamic_image_size=True), height, width, 3)
    one_line(caught.value, f"the image is {height}x{width}", "patch_size = (7, 5)")


def test_a_single_image_is_not_a_batch():
    arrays = redrawn(SMALL)
    model = vit_torch.from_arrays(SMALL, arrays)
    with pytest.raises(InputError, match=r"images have shape \(3, 21, 15\), expected \(B, C, H, W\)"):
        model(torch.zeros(3, 21, 15))
    with jax.enable_x64(True):
        twin = vit_jax.from_arrays(SMALL, arrays)
    with pytest.raises(InputError, match=r"images have shape \(21, 15, 3\), expected \(B, H, W, C\)"):
        twin(np.zeros((21, 15, 3)))


@pytest.mark.parametrize("cfg", [SMALL, SMALL.replace(patch_embed="linear_hwc")])
@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("uint8", "images are uint8, the model takes normalised ones in float32"),
        ("bfloat16", "images are bfloat16, the model computes in float32"),
    ],
)
def test_images_are_of_the_type_that_the_model_computes_in(cfg, dtype, said):
    arrays = {name: each.astype(np.float32) for name, each in redrawn(cfg).items()}
    with pytest.raises(InputError, match=said):
        vit_torch.from_arrays(cfg, arrays)(torch.zeros(1, 3, 21, 15, dtype=getattr(torch, dtype)))
    with pytest.raises(InputError, match=said):
        vit_jax.from_arrays(cfg, arrays)(jax.numpy.zeros((1, 21, 15, 3), dtype))


def test_images_of_the_other_framework_are_refused():
    arrays = {name: each.astype(np.float32) for name, each in redrawn(SMALL).items()}
    with pytest.raises(InputError, match=r"images are of numpy, the model is of torch; give torch\.f"):
        vit_torch.from_arrays(SMALL, arrays)(np.zeros((1, 3, 21, 15)))
    with pytest.raises(InputError, match=r"images are of torch, the model is of jax; give images\.nu"):
        vit_jax.from_arrays(SMALL, arrays)(torch.zeros(1, 21, 15, 3))


def test_under_autocast_images_need_no_cast():
    model = vit_torch.from_arrays(SMALL, redrawn(SMALL)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert model.logits(torch.zeros(1, 3, 21, 15)).shape == (1, 11)


def test_pixels_are_bytes_with_the_channels_that_are_normalised():
    with pytest.raises(InputError, match="images are float32, expected uint8"):
        Preprocess().normalise(np.zeros((2, 21, 15, 3), np.float32))
    with pytest.raises(InputError, match="images have 1 channels, the preprocessing has 3"):
        Preprocess().normalise(np.zeros((2, 21, 15, 1), np.uint8))


@pytest.fixture
def weights(tmp_path):
    """A good weights file."""
    path = tmp_path / "weights.safetensors"
    write_weights(path, SMALL, redrawn(SMALL), Preprocess())
    return path


@pytest.mark.parametrize("twin", EVALUATE)
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"labels": [0, 11]}, ["labels go from 0 to 11", "num_classes = 11 (0 to 10)"]),
        ({"labels": [-1, 3]}, ["labels go from -1 to 3", "num_classes = 11"]),
        ({"labels": [2**40, 3]}, [str(2**40), "int64"]),
        ({"labels": [0.5, 3.7]}, ["3.7", "float64", "integers"]),
        ({"labels": [1]}, ["images (2, 21, 15, 3) uint8, labels (1,)"]),
        ({"images": np.zeros((2, 15, 21, 3), np.uint8)}, ["15x21", "image_size = 21x15"]),
        ({"images": np.zeros((2, 21, 15, 3))}, ["float64", "uint8"]),
        ({"pictures": [1]}, ["images"]),
    ],
)
def test_scoring_refuses_labels_and_images_that_do_not_fit(twin, arrays, words, weights, capsys):
    good = {"images": np.zeros((2, 21, 15, 3), np.uint8), "labels": np.array([0, 10])}
    path = weights.parent / "images.npz"
    np.savez(path, **(arrays if "pictures" in arrays else {**good, **arrays}))
    assert EVALUATE[twin].main([str(weights), str(path)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    for word in words:
        assert word in err
