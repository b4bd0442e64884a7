"""open_clip prepares pixels as its written config file says, and what that cannot say is told."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parity.measure.redraw import redraw
from parity.porting.dialects import find_dialects
from parity.porting.dialects.sidecars import unsaid
from parity.porting.formats.metadata import Metadata
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from tests.support.tiny import TINY
from vit_config import Preprocess, write_weights
from vit_config.images.pixels import prepare_batch
from vit_config.parameters import parameters

import_timm()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    open_clip = import_module("open_clip")

(DIALECT,) = find_dialects("open-clip")[:1]
SQUARE = TINY.replace(patch_bias=False, pre_norm=True, head_bias=False, image_size=21, patch_size=7)
OBLONG = SQUARE.replace(image_size=(21, 15), patch_size=(7, 5))
PIXELS = Preprocess(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
NOISE = np.random.default_rng(0).integers(0, 256, (41, 57, 3), dtype=np.uint8)


def theirs(cfg, pixels: Preprocess) -> np.ndarray:
    """The image (H, W, C) that open_clip's own reader of the written file makes."""
    assert DIALECT.settings is not None
    written = DIALECT.settings.files(cfg, Metadata(pixels=pixels))["open_clip_config.json"]
    content = json.loads(json.dumps(written))
    transform = open_clip.transform
    size = {"size": content["model_cfg"]["vision_cfg"]["image_size"]}
    entries = (
        transform.merge_preprocess_dict(transform.PreprocessCfg(), content["preprocess_cfg"]) | size
    )
    prepare = transform.image_transform_v2(transform.PreprocessCfg(**entries), is_train=False)
    return prepare(Image.fromarray(NOISE)).numpy().transpose(1, 2, 0)


SAID = {
    "bicubic": (SQUARE, {}),
    "bilinear": (SQUARE, {"interpolation": "bilinear"}),
    "squashed": (OBLONG, {"interpolation": "bilinear", "crop_mode": "squash"}),
    "oblong": (OBLONG, {}),
    "the model's own size": (SQUARE, {"image_size": 21}),
}


@pytest.mark.parametrize("case", SAID)
def test_open_clip_does_what_is_written(case: str) -> None:
    cfg, changes = SAID[case]
    pixels = PIXELS.replace(**changes)
    assert unsaid(DIALECT, cfg, Metadata(pixels=pixels)) == ""
    (expected,) = prepare_batch([NOISE], cfg.image_size, pixels)
    np.testing.assert_allclose(theirs(cfg, pixels), expected, atol=1e-6)


UNSAID = {
    "a filter that it refuses": (SQUARE, {"interpolation": "lanczos"}, "bicubic"),
    "a crop": (SQUARE, {"crop_fraction": 0.875}, "1.0"),
    "bars": (SQUARE, {"crop_mode": "border"}, "center"),
    "another size": (SQUARE.replace(dynamic_image_size=True), {"image_size": (28, 35)}, "(21, 21)"),
    "a filter that it ignores": (OBLONG, {"interpolation": "bilinear"}, "bicubic"),
}


@pytest.mark.parametrize("case", UNSAID)
def test_what_the_file_cannot_say_is_told_and_read_all_the_same(case: str) -> None:
    cfg, changes, instead = UNSAID[case]
    pixels = PIXELS.replace(**changes)
    ((name, value),) = changes.items()
    said = unsaid(DIALECT, cfg, Metadata(pixels=pixels))
    assert said.endswith(f"says {name} = {value}; its library will take {name} = {instead}")
    taken = PIXELS.replace(**{name: getattr(Preprocess(), name)})
    (expected,) = prepare_batch([NOISE], cfg.image_size, taken)
    np.testing.assert_allclose(theirs(cfg, pixels), expected, atol=1e-6)


def test_convert_warns(tmp_path: Path) -> None:
    arrays = {n: redraw(n, p.kind, p.shape, seed=0) for n, p in parameters(SQUARE).items()}
    pixels = PIXELS.replace(interpolation="box", crop_fraction=0.7)
    write_weights(tmp_path / "own.safetensors", SQUARE, arrays, pixels)
    (said,) = convert(tmp_path / "own.safetensors", to="open-clip", out=tmp_path / "folder").warnings
    assert "says interpolation = box, crop_fraction = 0.7; " in said
    file = convert(tmp_path / "own.safetensors", to="open-clip", out=tmp_path / "file.safetensors")
    assert file.warnings == ()
