"""From images to a model's input pixels, through PIL: opening, colours, fitting to a size.

An image file comes from a stranger: the memory it would take is known from its head, before its
pixels are made.

The rule, every rounding included, is timm's (with PIL); docs/preprocessing.md lists what it was
measured to be equal to. The orientation that a camera notes in a file is applied where the
preprocessing has ``exif = "apply"``, which no library does by itself.
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np

from vit_config.base import MOST_PIXELS
from vit_config.errors import InputError, MissingFileError, first_line
from vit_config.images.bands import TIFF, BandsError, is_stored, read_bands
from vit_config.images.jpeg import decode_jpeg, scale_for
from vit_config.images.orientation import is_noted, upright
from vit_config.images.patches import size_within
from vit_config.images.preprocess import WHITE, Exif, Preprocess

if TYPE_CHECKING:
    from PIL import Image

Picture: TypeAlias = "np.ndarray | Image.Image | str | Path"
"""An image: (H, W) or (H, W, C) uint8, or PIL's, or the path of a file."""

_BUFFER = re.compile(r" <_io\.\w+ .*>$")
"""PIL's name of an image that it was given open."""
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
FILE_CHANNELS = frozenset(_MODES)
"""Numbers of channels that an image file can be read in, whatever it is stored in."""
_DEEP = ("I", "F")
"""Beginnings of the names of modes with more than 8 bits; PIL would cut values above 255."""
_FORMATS = (
    *("PNG", "JPEG", "MPO", "PPM", "BMP", "DIB", "GIF", "WEBP", "TIFF", "JPEG2000", "AVIF"),
    *("ICO", "PCX", "SGI", "TGA"),
)
"""Formats whose pixels are in the file; for EPS PIL would start Ghostscript, an interpreter."""
ROW = 16
"""Pixels that a row takes the memory of, in addition to its own, for PIL points to each."""
PIXELS_A_BYTE = 16
"""Pixels for each byte of a file that may have more than `MOST_PIXELS`; photographs have five."""
_ALONE = threading.Lock()
"""Held by the one thread that opens an image of `FEW_PIXELS` or more in few bytes: what each of
several threads may take, all of them together may not."""
FEW_PIXELS = 2**22
"""Pixels that each thread may open beside the others, however few bytes hold them."""
LONGEST_FILE = 2**28
"""Most bytes of a file with an image; one pixel of 2^26 takes four, unpacked."""


class DamagedImageError(InputError):
    """Damage to an image: its bytes are none, or not all of one; the message is PIL's."""


def prepare(
    image: Picture,
    image_size: tuple[int, int],
    preprocess: Preprocess,
    patch_size: tuple[int, int] | None = None,
) -> np.ndarray:
    """Bring one image to the model's size and channels.

    Args:
        image: the image; a grey one becomes RGB, transparency is left out, and so on.
        image_size: (H, W) in pixels, unless `preprocess` has a size of its own.
        preprocess: the length of its `mean` is the number of channels.
        patch_size: (ph, pw), needed where `preprocess` has `max_patches`.

    Returns:
        (H, W, C) of the type of `preprocess`.

    Raises:
        MissingFileError: there is no such file.
        InputError: it is not an image, is damaged, has pixels of another type than `preprocess`, or has
            channels that cannot become the expected ones.
    """
    channels = len(preprocess.mean)
    pixels = _pixels(image, channels, preprocess)
    if pixels.dtype != preprocess.pixel_type or pixels.shape[2] != channels:
        raise InputError(
            f"{image if isinstance(image, str | Path) else 'an image'}: has {pixels.shape[2]} channels"
            f" of {pixels.dtype}, expected {channels} of {preprocess.pixel_type}"
        )
    if preprocess.max_patches is None or patch_size is None:
        return fit(pixels, preprocess.image_size or image_size, preprocess)
    size = size_within((pixels.shape[0], pixels.shape[1]), patch_size, preprocess.max_patches)
    return _resized(pixels, size, preprocess)


def prepare_batch(
    images: Iterable[Picture], image_size: tuple[int, int], preprocess: Preprocess
) -> np.ndarray:
    """Bring images to the model's size and channels, and normalise them.

    Args:
        images: at least one.

    Returns:
        (B, H, W, C) float32.

    Raises:
        MissingFileError, InputError: see `prepare`.
    """
    pixels = [prepare(image, image_size, preprocess) for image in images]
    if not pixels:
        raise InputError("no images given; give at least one")
    return preprocess.normalise(np.stack(pixels))


def decode(
    encoded: bytes, channels: int, least: int | None = None, *, exif: Exif = "ignore"
) -> np.ndarray:
    """Decode PNG, JPEG or another format of `_FORMATS`; a grey or CMYK file becomes RGB, and so on. A
    NumPy array, or a TIFF file that is more than a picture, stays as it is: `vit_config.images.bands`.

    Args:
        least: length of the smaller side that is enough, in pixels: a JPEG is decoded to 1/2, 1/4 or
            1/8 of its size where that is not below; faster, but with other pixels than the whole
            image's.
        exif: see `Preprocess`.

    Returns:
        (H, W, channels) uint8, read-only; the same with and without simplejpeg. Or what bands there are.

    Raises:
        DamagedImageError: the bytes are not an image, or a truncated one.
        InputError: the image has more pixels than a file of its size may have, or more than 8 bits
            per channel.
    """
    plain = exif == "ignore" or not is_noted(encoded)
    if plain and (pixels := decode_jpeg(encoded, channels, least)) is not None:
        return pixels
    return _read(io.BytesIO(encoded), len(encoded), channels, exif, least)


def _read(
    source: IO[bytes], nbytes: int, channels: int, exif: Exif, least: int | None = None
) -> np.ndarray:
    """Read a file of `nbytes` bytes as (H, W, channels) uint8, or its bands as they are."""
    head = source.read(8)
    source.seek(0)
    if is_stored(head) and nbytes <= LONGEST_FILE:
        try:
            pixels = read_bands(source.read())
        except BandsError as error:
            raise DamagedImageError(str(error)) from None
        if pixels is not None:
            return pixels
        source.seek(0)
    from PIL import Image

    try:
        Image.init()
        with Image.open(source, formats=[each for each in _FORMATS if each in Image.OPEN]) as file:
            if (scale := scale_for(file.size, least)) > 1 and file.format in ("JPEG", "MPO"):
                file.draft(None, (file.width // scale, file.height // scale))
            if (file.width + ROW) * file.height > (most := max(MOST_PIXELS, PIXELS_A_BYTE * nbytes)):
                raise InputError(
                    f"{file.width} x {file.height} pixels in {nbytes} bytes; at most {most} are read"
                )
            pixels = file.width * file.height
            with _ALONE if pixels > max(FEW_PIXELS, PIXELS_A_BYTE * nbytes) else nullcontext():
                return _converted(file, channels, exif)
    except InputError:
        raise
    except Exception as error:  # each of PIL's readers has errors of its own for damage
        reason = _BUFFER.sub("", first_line(error))
        if head.startswith(TIFF) and not find_spec("tifffile"):
            reason += '; TIFF files of many bands are read by pip install "vit-parity[bands]"'
        raise DamagedImageError(reason or type(error).__name__) from None


def fit(pixels: np.ndarray, size: tuple[int, int], preprocess: Preprocess) -> np.ndarray:
    """Resize an image and crop its centre.

    Args:
        pixels: (h, w, C) uint8.
        size: (H, W) in pixels.
        preprocess: its `interpolation`, `crop_fraction` and `crop_mode` apply.

    Returns:
        (H, W, C) uint8.
    """
    if preprocess.max_patches is not None:
        raise InputError(
            f"max_patches = {preprocess.max_patches} gives each image a size of its own, but one size,"
            f" {size[0]}x{size[1]}, is needed here; state a preprocessing without it"
        )
    height, width = resized_size((pixels.shape[0], pixels.shape[1]), size, preprocess)
    if height * width > max(MOST_PIXELS, pixels.shape[0] * pixels.shape[1]):
        raise InputError(
            f"an image of {pixels.shape[1]} x {pixels.shape[0]} pixels would be resized to {width} x"
            f" {height} to cover {size[1]} x {size[0]}; cut what is so long, or set crop_mode = squash"
        )
    pixels = _resized(pixels, (height, width), preprocess)
    if preprocess.crop_mode == "border":
        pixels = _padded(pixels, size, preprocess)
    # Python rounds halves to even, and so does everybody who crops as torchvision does
    top, left = (round((have - want) / 2) for have, want in zip(pixels.shape[:2], size, strict=True))
    return pixels[top : top + size[0], left : left + size[1]]


def _resized(pixels: np.ndarray, size: tuple[int, int], preprocess: Preprocess) -> np.ndarray:
    """Resize an image to exactly a size."""
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    resample = Image.Resampling[preprocess.interpolation.upper()]
    height, width = size
    return through_pil(pixels, lambda plane: plane.resize((width, height), resample))


def resized_size(
    image: tuple[int, int], size: tuple[int, int], preprocess: Preprocess
) -> tuple[int, int]:
    """Return the height and width that an image of size `image` is resized to before the crop."""
    cover = preprocess.resized(size)
    if preprocess.crop_mode == "squash":
        return cover
    if preprocess.crop_mode == "center" and cover[0] == cover[1]:  # torchvision's Resize cuts off
        return cover[0] * image[0] // min(image), cover[1] * image[1] // min(image)
    ratios = [
        have / want for have, want in zip(image, cover, strict=True)
    ]  # timm's ResizeKeepRatio rounds
    ratio = max(ratios) if preprocess.crop_mode == "border" else min(ratios)
    return max(round(image[0] / ratio), 1), max(round(image[1] / ratio), 1)


def _padded(pixels: np.ndarray, size: tuple[int, int], preprocess: Preprocess) -> np.ndarray:
    """Pad an image smaller than `size` by bars of the mean colour, the wider one below or right."""
    missing = [max(want - have, 0) for have, want in zip(pixels.shape[:2], size, strict=True)]
    if not any(missing):
        return pixels
    height, width, channels = pixels.shape
    padded = np.empty((height + missing[0], width + missing[1], channels), pixels.dtype)
    colour: list[float] = list(preprocess.mean)
    if pixels.dtype != np.float32:
        white = WHITE[pixels.dtype.name]
        colour = [min(max(round(white * mean), 0), white) for mean in preprocess.mean]
    padded[:] = colour
    top, left = (each // 2 for each in missing)
    padded[top : top + height, left : left + width] = pixels
    return padded


def _pixels(image: Picture, channels: int, preprocess: Preprocess) -> np.ndarray:
    """Convert an image of any kind to (H, W, channels), of uint8, or as a file of bands or an array has
    it."""
    from PIL import Image

    pixel_type, exif = preprocess.pixel_type, preprocess.exif
    if isinstance(image, str | Path):
        return opened(Path(image), channels, exif)
    if isinstance(image, Image.Image):
        return _converted(image, channels, exif)
    if not isinstance(image, np.ndarray):
        raise InputError(
            f"an image is a {type(image).__name__}; give a path, a PIL image or an array of NumPy"
        )
    if image.dtype != pixel_type:
        of = " pixels 0..255" if pixel_type == "uint8" else ""
        raise InputError(
            f"an image is of type {image.dtype}, expected {pixel_type}{of}; the model itself takes"
            " normalised ones"
        )
    if image.ndim == 2:
        image = image[:, :, None]
    if image.ndim != 3 or not image.size:
        raise InputError(f"an image has shape {image.shape}, expected (H, W) or (H, W, C)")
    if image.shape[2] == channels or pixel_type != "uint8":
        return image
    if not {image.shape[2], channels} <= _MODES.keys():
        raise InputError(f"an image has shape {image.shape}, expected (H, W, {channels})")
    return _converted(Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image), channels)


def opened(path: Path, channels: int, exif: Exif) -> np.ndarray:
    """Read a file as (H, W, channels), of uint8 or as a file of bands has it.

    Raises:
        MissingFileError: there is no such file.
        InputError: it is not an image, or damaged.
    """
    if not path.is_file():
        other = "is a pipe or a device, not an ordinary file" if path.exists() else "no such file"
        what = "is a folder" if path.is_dir() else other
        raise MissingFileError(f"{path}: {what}; give the path of an image")
    try:
        with path.open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size, channels, exif)
    except DamagedImageError as error:
        raise InputError(f"{path}: not an image, or damaged ({error})") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _converted(image: Image.Image, channels: int, exif: Exif = "ignore") -> np.ndarray:
    """Convert a PIL image to (H, W, channels) uint8, read-only."""
    if image.mode.partition(";")[0] in _DEEP:
        raise InputError(
            f"the image has more than 8 bits per channel (mode {image.mode}); scale it to uint8 first"
        )
    if channels not in _MODES:
        raise InputError(
            f"a PIL image or file has no {channels} channels; give an array (H, W, {channels})"
        )
    if isinstance(image.info.get("transparency"), bytes):
        # a palette with partly transparent colours: PIL would warn otherwise
        image = image.convert("RGBA")
    image = upright(image) if exif == "apply" else image
    image = image if image.mode == _MODES[channels] else image.convert(_MODES[channels])
    pixels = np.asarray(image)  # (H, W) or (H, W, C)
    return pixels.reshape(*pixels.shape[:2], channels)


def through_pil(pixels: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Apply a PIL operation to an image of any number of channels.

    Args:
        pixels: (H, W, C), of uint8, uint16 or float32; PIL computes the last two in float32.
        change: operation that keeps the mode of its image.

    Returns:
        (H', W', C) of the same type.
    """
    from PIL import Image

    if pixels.shape[2] == 3 and pixels.dtype == np.uint8:
        return np.asarray(change(Image.fromarray(pixels)))
    # one plane at a time: PIL takes a second or fourth channel for transparency and weighs by it
    by_plane = pixels if pixels.dtype == np.uint8 else pixels.astype(np.float32)
    planes = [
        np.asarray(change(Image.fromarray(by_plane[:, :, channel])))
        for channel in range(pixels.shape[2])
    ]
    changed = np.stack(planes, axis=-1)
    if pixels.dtype == np.uint16:
        return np.clip(np.rint(changed), 0, WHITE["uint16"]).astype(np.uint16)
    return changed
