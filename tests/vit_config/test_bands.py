"""Arrays and TIFF files of many bands come as they are stored; what no image has is refused."""

import io

import numpy as np
import pytest
import tifffile
from PIL import Image

from tests.support.refusals import one_line
from vit_config import Augment, DataError, InputError, Preprocess, Recipe
from vit_config.images.bands import read_bands
from vit_config.images.pixels import DamagedImageError, decode, fit, prepare
from vit_train.augmentation.views import Views
from vit_train.batches.fit import make_preprocess
from vit_train.batches.statistics import channel_statistics
from vit_train.data.dataset import ImageDataset
from vit_train.data.records import Records

pytestmark = pytest.mark.quick

VALUES = np.random.default_rng(0).integers(0, 2**16, (7, 6, 13)).astype(np.uint16)


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def tiff(values, **how):
    file = io.BytesIO()
    tifffile.imwrite(file, values, **{"photometric": "minisblack", **how})
    return file.getvalue()


@pytest.mark.parametrize(
    "encoded",
    [
        npy(VALUES),
        npy(np.asfortranarray(VALUES)),
        npy(VALUES.astype(">u2")),
        tiff(VALUES, planarconfig="contig"),
        tiff(VALUES.transpose(2, 0, 1), planarconfig="separate"),
        tiff(VALUES.transpose(2, 0, 1)),  # a page each
        tiff(VALUES.transpose(2, 0, 1), compression="zlib"),
        tiff(VALUES.transpose(2, 0, 1), byteorder=">", bigtiff=True),
    ],
    ids=["array", "by columns", "other bytes", "tiff", "planes", "pages", "compressed", "big"],
)
def test_bands_are_those_stored(encoded):
    actual = decode(encoded, 3)
    assert actual.dtype == np.uint16
    np.testing.assert_array_equal(actual, VALUES)


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [("int16", "float32"), ("float64", "float32"), ("float16", "float32"), ("uint8", "uint8")],
)
def test_other_types(kind, becomes):
    values = (VALUES % 100).astype(kind)
    actual = read_bands(npy(values))
    assert actual.dtype == becomes
    np.testing.assert_array_equal(actual, values)


def test_a_picture_is_left_to_pil():
    pixels = (VALUES[..., :4] % 256).astype(np.uint8)
    for mode, count in (("L", 1), ("RGB", 3), ("RGBA", 4), ("P", 1), ("CMYK", 4), ("1", 1)):
        file = io.BytesIO()
        image = Image.fromarray(pixels[..., :count].squeeze(), mode if mode not in ("P", "1") else "L")
        image.convert(mode).save(file, "TIFF")
        assert read_bands(file.getvalue()) is None, mode
        assert decode(file.getvalue(), 3).shape == (7, 6, 3)
    stored = tiff(pixels, photometric="rgb", extrasamples=["unspecified"])  # RGB and near infrared
    np.testing.assert_array_equal(decode(stored, 4), pixels)


@pytest.mark.parametrize(
    ("encoded", "word"),
    [
        (npy(np.array([None])), "expected numbers"),
        (npy(VALUES.astype(np.int64)), "type int64"),
        (npy(VALUES > 3), "type bool"),
        (npy(VALUES.transpose(2, 0, 1)[:2]), "move the bands last"),
        (npy(VALUES[0, 0]), "shape (13,)"),
        (npy(VALUES[None]), "shape (1, 7, 6, 13)"),
        (npy(VALUES)[:-3], "takes another number"),
        (npy(VALUES)[:9], "EOF"),
        (npy(np.full((4, 3), np.nan)), "not finite"),
        (tiff(VALUES)[:300], ""),
        (tiff(np.zeros((2, 3, 7, 6), np.uint16)), "axes"),
    ],
)
def test_what_no_image_has(encoded, word):
    with pytest.raises(DamagedImageError) as caught:
        decode(encoded, 3)
    one_line(caught.value, word)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_resizing_is_that_of_each_band(kind):
    values = (VALUES % 256).astype(kind)
    fitted = fit(values, (5, 4), Preprocess(interpolation="bilinear", crop_mode="squash"))
    assert fitted.dtype == kind
    for band in (0, 12):
        plane = Image.fromarray(values[..., band].astype(np.uint8 if kind == "uint8" else np.float32))
        expected = np.asarray(plane.resize((4, 5), Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(
            fitted[..., band], np.rint(expected) if kind == "uint16" else expected
        )


@pytest.mark.parametrize(("kind", "white"), [("uint8", 255), ("uint16", 65_535), ("float32", 1)])
def test_statistics_are_those_of_all_values(kind, white):
    values = VALUES.astype(kind)
    raw = [{"image": npy(part), "label": 0} for part in (values, values[:4], values[:, :5])]
    shape = (None, None, 13)
    records = Records(raw, where="bands", num_classes=1, image_shape=shape, pixel_type=kind)
    mean, std = channel_statistics(records)
    whole = np.concatenate([part.reshape(-1, 13) for part in (values, values[:4], values[:, :5])])
    np.testing.assert_allclose(mean, whole.mean(axis=0, dtype=np.float64) / white, rtol=1e-12)
    np.testing.assert_allclose(std, whole.std(axis=0, dtype=np.float64) / white, rtol=1e-12)
    normalised = Preprocess(mean=mean, std=std, pixel_type=kind).normalise(values)
    expected = (values.astype(np.float64) / white - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(normalised, expected, atol=1e-5)


def dataset_of(values, kind):
    """A set of one image."""
    shape = (None, None, values.shape[-1])
    raw = [{"image": npy(values), "label": 0}]
    records = Records(raw, where="bands", num_classes=1, image_shape=shape, pixel_type=kind)
    return ImageDataset("bands", records, records, 1, shape, None, "")


def test_pixels_that_recipe_weights_and_changes_cannot_take_are_named():
    floats = dataset_of(VALUES.astype(np.float32), "float32")
    with pytest.raises(DataError) as caught:
        make_preprocess(floats, Recipe(pixels="half"))
    one_line(
        caught.value, 'pixels = "half" is for pixels from 0 to a largest value', "bands has float32"
    )
    with pytest.raises(DataError) as caught:
        make_preprocess(
            dataset_of(VALUES, "uint16"), Recipe(), Preprocess(mean=(0.5,) * 13, std=(1.0,) * 13)
        )
    one_line(caught.value, "bands has pixels of uint16", "take uint8", "convert the images")
    wide = Preprocess(mean=(0.5,) * 3, std=(1.0,) * 3, pixel_type="uint16")
    with pytest.raises(DataError) as caught:
        Views(Augment(crop="tensorflow"), (7, 6), wide)
    one_line(
        caught.value, 'augment.crop = "tensorflow" is for 8 bits, but pixels are uint16', "torchvision"
    )


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        ("data", ["channel 12 of 13 has the same value"]),
        ("imagenet", ['pixels = "imagenet" is for 3 channels', "bands has 13"]),
    ],
)
def test_bands_that_cannot_be_scaled_are_named(pixels, words):
    values = VALUES.copy()
    values[..., 12] = 7
    with pytest.raises(DataError) as caught:
        make_preprocess(dataset_of(values, "uint16"), Recipe(pixels=pixels))
    one_line(caught.value, *words)


def test_what_the_preprocessing_states_is_kept_and_asked_for(tmp_path):
    with_more = Preprocess(mean=(0.1,) * 13, std=(0.2,) * 13, pixel_type="uint16", several_labels=True)
    assert Preprocess.from_json(with_more.to_json()) == with_more
    assert "pixel_type" not in Preprocess().to_json()  # files without it stay what they were
    path = tmp_path / "image.npy"
    path.write_bytes(npy(VALUES))
    np.testing.assert_array_equal(prepare(path, (7, 6), with_more), VALUES)
    np.testing.assert_array_equal(prepare(VALUES, (7, 6), with_more), VALUES)
    with pytest.raises(InputError) as caught:
        prepare(path, (7, 6), Preprocess())
    one_line(caught.value, "has 13 channels of uint16, expected 3 of uint8")


def test_values_that_a_file_of_its_size_does_not_hold_are_not_made():
    encoded = tiff(np.zeros((4096, 4200), "float64"), compression="zlib")
    with pytest.raises(DamagedImageError, match=r"137625600 bytes of values in \d+; at most 134"):
        decode(encoded, 1)
