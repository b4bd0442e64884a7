"""Images to pixels: equal to timm and torchvision, and by how much to transformers."""

import io
import math
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, ImageOps

from evidence import compare_preprocessing as peers
from vit_config import ConfigError, InputError, MissingFileError, Preprocess
from vit_config.images.orientation import HEAD, is_turned, is_turned_file
from vit_config.images.pixels import decode, fit, prepare, prepare_batch
from vit_config.images.preprocess import crop_fraction

SQUASH = Preprocess(crop_mode="squash")
SHIFTED = {  # the crop leaves 3, 7, ... pixels over, whose half transformers does not round but cuts off
    **{name: {(97, 64), (299, 224), (224, 227)} for name in ("CLIP", "ChineseCLIP", "Llava")},
    "Bit": {(224, 227), (480, 201)},
}


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def rgb(h=9, w=7):
    return Image.fromarray(noise(h, w, 3))


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_equal_to_timm_bit_for_bit(mode):
    cases = [case for case in peers.timm_cases() if case.title.startswith(mode)]
    assert len(cases) == 24
    for case in cases:
        difference = peers.compare(case)
        assert difference.equal == difference.images, (case.title, case.size)


@pytest.mark.parametrize("shape", [(1, 1), (2, 61), (61, 2), (7, 7)])
@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_tiny_and_long_images_are_as_in_timm(mode, shape):
    peers.import_timm()
    from timm.data.transforms_factory import transforms_imagenet_eval

    size, mean, std = (30, 24), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    transform = transforms_imagenet_eval(
        size, crop_pct=0.7, crop_mode=mode, interpolation="bicubic", mean=mean, std=std
    )
    preprocess = Preprocess(mean=mean, std=std, crop_fraction=0.7, crop_mode=mode)
    image = rgb(*shape)
    ours = prepare_batch([image], size, preprocess)[0]
    np.testing.assert_array_equal(ours.transpose(2, 0, 1), transform(image).numpy())


def test_equal_to_torchvisions_presets_bit_for_bit():
    cases = list(peers.torchvision_cases())
    assert {case.size[0] for case in cases} >= {224, 384, 512, 518}
    for case in cases:
        difference = peers.compare(case, peers.SHAPES[:4])
        assert difference.equal == difference.images, case.title


@pytest.mark.parametrize("backend", ["PIL", "tensors"])
def test_transformers_differ_by_what_the_table_says(backend):
    cases = [case for case in peers.hugging_face_cases() if case.library.endswith(backend)]
    assert len(cases) == {"PIL": 13, "tensors": 16}[backend]
    for case in cases:
        difference = peers.compare(case)
        assert set(difference.shifted) == SHIFTED.get(case.title.partition(":")[0], set()), case.title
        if backend == "PIL":
            assert difference.equal == difference.images - len(difference.shifted), case.title
        else:  # resized as tensors: rounded at other places, and cut off at 0 and 255 at others
            assert difference.mean < 0.5, case.title
            assert difference.largest < (1.01 if "bilinear" in case.title else 20), case.title


def test_odd_pictures_are_as_in_transformers_or_refused():
    """Its classes that convert to RGB put what is transparent on white; here the colour behind shows."""
    of_pil = [case for case in peers.hugging_face_cases() if "PIL" in case.library]
    converting = [case for case in of_pil[3:] if case.preprocess.max_patches is None]
    for case in converting[:: len(converting) // 3]:  # three or four of them
        odd = [
            rgb(1, 9),
            rgb(9, 1),
            rgb(1, 1),
            *(rgb().convert(mode) for mode in ("L", "P", "1", "CMYK")),
        ]
        for image in odd:
            ours = prepare_batch([image], case.size, case.preprocess)[0]
            np.testing.assert_array_equal(ours, case.prepared(image).transpose(1, 2, 0), case.title)
        seen = rgb().convert("RGBA")
        seen.putalpha(Image.fromarray(noise(9, 7)))
        white = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
        on_white = prepare_batch([white], case.size, case.preprocess)[0]
        np.testing.assert_array_equal(on_white, case.prepared(seen).transpose(1, 2, 0), case.title)
        with pytest.raises(InputError, match="more than 8 bits"):
            prepare_batch([Image.fromarray(noise(9, 7).astype(np.uint16))], case.size, case.preprocess)


def test_the_table_of_odd_pictures_says_where_dinov3_and_vit_differ():
    cases = {each.title.partition(":")[0]: each for each in peers.hugging_face_cases()}
    pictures = peers.odd_pictures()
    said = {name: peers.odd(cases["DINOv3ViT"], image) for name, image in pictures.items()}
    assert said["RGBA"] == said["CMYK"] == "they refuse"
    assert said["16 bits"] == "we refuse"
    assert peers.odd(cases["Siglip2"], pictures["grey"]) == "they refuse"
    assert float(peers.odd(cases["Siglip2"], pictures["10x900"])) <= 1
    assert float(said["palette"]) > 100  # the numbers of the palette, as grey
    assert all(float(said[name]) <= 1 for name in ("grey", "turned", "1 pixel high", "10x900"))
    assert {peers.odd(cases["ViT"], pictures[name]) for name in ("grey", "palette")} == {"they refuse"}


def test_a_crop_fraction_gives_back_what_it_was_made_of():
    assert math.floor(224 / (224 / 354)) == 353  # why the quotient alone will not do
    for size in (7, 224, 256, 384, 518):
        for resized in range(size, size + 300):
            fraction = crop_fraction(size, resized)
            assert Preprocess(crop_fraction=fraction).resized((size, size)) == (resized, resized)
    assert crop_fraction(224, 256) == 0.875
    for wrong in ((225, 224), (0, 224)):
        with pytest.raises(ConfigError, match="does not fit"):
            crop_fraction(*wrong)


def test_a_size_of_the_preprocessings_own_goes_before_the_models():
    own = SQUASH.replace(image_size=(6, 5))
    assert prepare(rgb(), (8, 8), own).shape == (6, 5, 3)
    assert prepare(rgb(), (8, 8), SQUASH).shape == (8, 8, 3)
    assert Preprocess.from_json(own.to_json()) == own
    assert Preprocess.from_json('{"mean": [0.5], "std": [0.2]}').image_size is None


def test_an_array_a_file_and_a_picture_are_the_same(tmp_path):
    image = rgb()
    image.save(tmp_path / "it.png")
    expected = prepare(image, (5, 4), SQUASH)
    assert expected.dtype == np.uint8
    for same in (np.asarray(image), tmp_path / "it.png", str(tmp_path / "it.png")):
        np.testing.assert_array_equal(prepare(same, (5, 4), SQUASH), expected)
    with io.BytesIO() as file:
        image.save(file, "PNG")
        np.testing.assert_array_equal(decode(file.getvalue(), 3), np.asarray(image))


def test_a_batch_is_normalised():
    batch = prepare_batch([rgb(), rgb(12, 30)], (5, 4), SQUASH)
    assert batch.shape == (2, 5, 4, 3)
    assert batch.dtype == np.float32
    np.testing.assert_array_equal(batch[0], SQUASH.normalise(prepare(rgb(), (5, 4), SQUASH)))
    with pytest.raises(InputError, match="no images given"):
        prepare_batch([], (5, 4), SQUASH)
    with pytest.raises(InputError, match=r"images are float32, expected uint8 pixels 0\.\.255$"):
        SQUASH.normalise(batch)


def palette_with_transparency():
    image = rgb().quantize(7)
    image.info["transparency"] = bytes(range(0, 250, 50))
    return image


@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(noise(9, 7)),
        Image.fromarray(noise(9, 7, 4)),
        rgb().convert("LA"),
        rgb().convert("CMYK"),
        rgb().convert("1"),
        rgb().quantize(7),
        palette_with_transparency(),
    ],
    ids=lambda image: image.mode,
)
def test_colours_become_rgb_as_in_timms_data_set(image):
    """timm says ``convert("RGB")``: what is behind a transparent pixel is seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PIL, of a transparent palette
        expected = np.asarray(image.copy().convert("RGB"))
    np.testing.assert_array_equal(prepare(image, (9, 7), SQUASH), expected)


def test_a_grey_model_takes_colour_and_grey():
    grey = Preprocess(mean=(0.5,), std=(0.5,), crop_mode="squash")
    expected = np.asarray(rgb().convert("L"))[:, :, None]
    np.testing.assert_array_equal(prepare(rgb(), (9, 7), grey), expected)
    np.testing.assert_array_equal(prepare(expected[:, :, 0], (9, 7), grey), expected)
    np.testing.assert_array_equal(prepare(expected, (9, 7), SQUASH), expected.repeat(3, axis=2))


def test_many_channels_come_as_arrays():
    many = Preprocess(mean=(0.5,) * 5, std=(0.5,) * 5, crop_mode="squash")
    image = noise(9, 7, 5)
    small = prepare(image, (4, 3), many)
    plane = Image.fromarray(image[:, :, 3]).resize((3, 4), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(small[:, :, 3], np.asarray(plane))
    with pytest.raises(InputError, match="give an array \\(H, W, 5\\)"):
        prepare(rgb(), (4, 3), many)


@pytest.mark.parametrize("noted", [None, *range(1, 9), 9])
@pytest.mark.parametrize("kind", ["png", "jpg", "webp", "tif"])
def test_a_cameras_orientation_is_applied_where_it_is_asked_for(noted, kind, tmp_path):
    """By default as timm does, which takes the pixels as PIL reads them; PIL turns a TIFF itself."""
    file, exif = tmp_path / f"it.{kind}", Image.Exif()
    if noted is not None:
        exif[0x0112] = noted
    rgb(16, 8).save(file, exif=exif)
    stored, turned = Image.open(file), ImageOps.exif_transpose(Image.open(file))
    for pixels, wanted in ((SQUASH, stored), (SQUASH.replace(exif="apply"), turned)):
        size = (wanted.height, wanted.width)
        for given in (file, Image.open(file)):
            np.testing.assert_array_equal(
                prepare(given, size, pixels), np.asarray(wanted.convert("RGB"))
            )
        decoded = decode(file.read_bytes(), 3, exif=pixels.exif)
        np.testing.assert_array_equal(decoded, np.asarray(wanted.convert("RGB")))
    noticed = noted in range(2, 9) and kind != "tif"
    assert (is_turned(file.read_bytes()), is_turned_file(file)) == (noticed, noticed)


def test_a_note_behind_the_pixels_of_a_large_file_is_noticed(tmp_path):
    file, exif = tmp_path / "it.webp", Image.Exif()
    exif[0x0112] = 6
    rgb(320, 320).save(file, exif=exif, lossless=True, method=0)
    assert file.stat().st_size > HEAD
    assert is_turned_file(file)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_damaged_note_is_none(tmp_path):
    rgb(16, 8).save(tmp_path / "it.jpg", exif=b"Exif\0\0MM\0*\0\0\xff\xff\xff\xff")
    content = (tmp_path / "it.jpg").read_bytes()
    assert not is_turned(content)
    assert decode(content, 3, exif="apply").shape == (16, 8, 3)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (Image.fromarray(np.zeros((4, 4), np.uint16)), "more than 8 bits per channel .mode I;16."),
        (Image.fromarray(np.zeros((4, 4), np.int32)), "more than 8 bits"),
        (Image.fromarray(np.zeros((4, 4), np.float32)), "more than 8 bits"),
        (np.zeros((4, 4, 3), np.float32), "type float32, expected uint8"),
        (np.zeros((4, 4, 3), np.uint16), "type uint16, expected uint8"),
        (noise(3, 4, 5), r"shape \(3, 4, 5\), expected \(H, W, 3\)"),
        (noise(2, 4, 5, 3), r"expected \(H, W\) or \(H, W, C\)"),
        (noise(0, 4, 3), r"shape \(0, 4, 3\)"),
        (b"bytes", "an image is a bytes"),
    ],
)
def test_what_is_no_image_is_refused(image, said):
    with pytest.raises(InputError, match=said) as caught:
        prepare(image, (4, 4), SQUASH)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_image_is_named(tmp_path):
    with pytest.raises(MissingFileError, match=r"nowhere\.png: no such file"):
        prepare(tmp_path / "nowhere.png", (4, 4), SQUASH)
    rgb(40, 40).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        (tmp_path / "broken.png").write_bytes(content)
        with pytest.raises(InputError, match=r"broken\.png: not an image, or damaged"):
            prepare(tmp_path / "broken.png", (4, 4), SQUASH)
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match=r"deep\.png: the image has more than 8 bits"):
        prepare(tmp_path / "deep.png", (4, 4), SQUASH)


def test_a_huge_image_is_refused(tmp_path, monkeypatch):
    rgb(20, 20).save(tmp_path / "it.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match="decompression bomb"):
        prepare(tmp_path / "it.png", (4, 4), SQUASH)


def test_images_of_many_pixels_in_few_bytes_are_opened_one_at_a_time(monkeypatch):
    """So that all threads together take no more than one."""
    flat = io.BytesIO()
    Image.new("L", (60, 50)).save(flat, "PNG")
    inside, most = [], []

    def slow(image, channels, exif):
        inside.append(image)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return np.asarray(image)

    monkeypatch.setattr("vit_config.images.pixels._converted", slow)
    for few, together in ((60 * 50, True), (60 * 50 - 1, False)):
        monkeypatch.setattr("vit_config.images.pixels.FEW_PIXELS", few)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: decode(flat.getvalue(), 1), range(8)))
        assert (max(most) > 1) == together
        most.clear()


def test_an_image_of_the_right_size_is_not_copied():
    image = noise(8, 6, 3)
    assert np.shares_memory(fit(image, (8, 6), Preprocess()), image)
