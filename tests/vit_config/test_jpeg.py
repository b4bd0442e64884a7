"""JPEG files: the pixels of PIL bit for bit, whoever decodes them, whole or at a part of their size."""

import io

import numpy as np
import pytest
from PIL import Image

from vit_config.images import jpeg
from vit_config.images.pixels import DamagedImageError, decode

pytestmark = pytest.mark.quick

SMOOTH = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8))
PICTURE = SMOOTH.resize((61, 43), Image.Resampling.BICUBIC)
KINDS = {
    "4:2:0": ("RGB", {"subsampling": "4:2:0"}),
    "4:2:2": ("RGB", {"subsampling": "4:2:2"}),
    "4:4:4": ("RGB", {"subsampling": "4:4:4", "quality": 97}),
    "progressive": ("RGB", {"progressive": True}),
    "restarts": ("RGB", {"restart_marker_rows": 1}),
    "kept as RGB": ("RGB", {"keep_rgb": True}),
    "grey": ("L", {}),
    "CMYK": ("CMYK", {}),
}


def encoded(kind):
    mode, options = KINDS[kind]
    file = io.BytesIO()
    PICTURE.convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("least", "scale"), [(None, 1), (22, 1), (21, 2), (10, 4), (5, 8)])
def test_pixels_are_those_of_pil(kind, least, scale, monkeypatch):
    data = encoded(kind)
    with Image.open(io.BytesIO(data)) as file:
        if scale > 1:
            file.draft(None, (61 // scale, 43 // scale))
        expected = np.asarray(file.convert("RGB"))
    assert expected.shape == (-(-43 // scale), -(-61 // scale), 3)
    np.testing.assert_array_equal(decode(data, 3, least), expected)
    monkeypatch.setattr(jpeg, "simplejpeg", None)
    np.testing.assert_array_equal(decode(data, 3, least), expected)


def test_one_channel_is_what_pil_makes_of_colours():
    for kind in KINDS:
        with Image.open(io.BytesIO(encoded(kind))) as file:
            expected = np.asarray(file.convert("L"))[:, :, None]
        np.testing.assert_array_equal(decode(encoded(kind), 1), expected)


def test_pil_judges_what_is_damaged():
    data = encoded("4:2:0")
    with pytest.raises(DamagedImageError, match="truncated"):
        decode(data[:-40], 3)
    np.testing.assert_array_equal(decode(data + b"more", 3), decode(data, 3))
    with pytest.raises(DamagedImageError, match=r"^cannot identify image file$"):
        decode(data[:2] + b"no image", 3)


def test_other_files_are_decoded_whole():
    file = io.BytesIO()
    PICTURE.save(file, "PNG")
    np.testing.assert_array_equal(decode(file.getvalue(), 3, 5), np.asarray(PICTURE))


def test_it_is_simplejpeg_that_decodes():
    for kind in KINDS:
        left_to_pil = jpeg.decode_jpeg(encoded(kind), 3) is None
        assert left_to_pil == (kind in ("CMYK", "kept as RGB")), kind
    assert jpeg.decode_jpeg(encoded("grey"), 1).shape == (43, 61, 1)
