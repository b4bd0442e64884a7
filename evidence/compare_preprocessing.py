"""Print what the preprocessing here is equal to, and where it is not by how much, as a Markdown table.

python -m evidence.compare_preprocessing            # the table of docs/preprocessing.md
"""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from evidence import positional
from parity.porting.dialects.records.hf import preprocessor
from parity.porting.reading.libraries.peers import import_timm
from vit_config import Preprocess
from vit_config.errors import InputError
from vit_config.images.pixels import prepare
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD, crop_fraction

FILTERS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
SHAPES = ((37, 51), (97, 64), (224, 224), (299, 224), (224, 227), (333, 500), (480, 201), (19, 300))
"""Heights and widths of the images: tiny, portrait, landscape, of the model's size, long."""

ROUND_OFF = 1e-3
"""Grey levels that are the last digits of float32."""
PATCH = 16
"""Side of the patches of which Siglip2's processor makes an image."""
ORIENTATION = 0x0112
"""EXIF's tag of how a camera was held."""

Prepared = Callable[[Image.Image], np.ndarray]
"""A library's way from an image to (C, H, W) float32."""


class Case(NamedTuple):
    """One library's way, and what should be the same here."""

    library: str
    title: str
    size: tuple[int, int]
    preprocess: Preprocess
    prepared: Prepared


class Difference(NamedTuple):
    """The distance of a library's images from those here."""

    equal: int
    """Images whose numbers are the same, bit for bit."""
    images: int
    largest: float
    """Largest difference in grey levels of any pixel of any image that is not shifted."""
    mean: float
    """Mean difference in grey levels of all pixels of the image that is furthest off."""
    shifted: tuple[tuple[int, int], ...]
    """Heights and widths of the images that are cropped one pixel further up or left."""


def picture(height: int, width: int) -> Image.Image:
    """An image of smooth areas, edges and noise."""
    rng = np.random.default_rng((height, width))
    coarse = rng.integers(0, 256, (max(height // 9, 2), max(width // 9, 2), 3), np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth).astype(int) + rng.integers(-20, 21, (height, width, 3))
    noisy[height // 3 : height // 2, width // 4 : width // 2] = 255
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def timm_cases() -> Iterator[Case]:
    """Every crop mode and filter of timm, square and not, with and without a crop."""
    import_timm()
    from timm.data import create_transform, resolve_data_config

    targets = ((64, 64), (96, 65))
    for mode, name in itertools.product(("center", "squash", "border"), FILTERS):
        for size, fraction in itertools.product(targets, (1.0, 0.9)):
            stated = {
                "input_size": (3, *size),
                "interpolation": name,
                "crop_pct": fraction,
                "crop_mode": mode,
                "mean": IMAGENET_MEAN,
                "std": IMAGENET_STD,
            }
            transform: Any = create_transform(**resolve_data_config(pretrained_cfg=stated))
            ours = Preprocess(
                mean=IMAGENET_MEAN,
                std=IMAGENET_STD,
                interpolation=name,
                crop_fraction=fraction,
                crop_mode=mode,
            )
            yield Case("timm", f"{mode}, {name}", size, ours, lambda im, t=transform: t(im).numpy())


def torchvision_cases() -> Iterator[Case]:
    """The transforms of torchvision's ViT weights."""
    import_timm()
    from torchvision.models import vision_transformer as module

    for name in sorted(vars(module)):
        for weights in getattr(module, name) if name.endswith("_Weights") else ():
            preset = weights.transforms()
            size = preset.crop_size[0]
            ours = Preprocess(
                mean=tuple(preset.mean),
                std=tuple(preset.std),
                interpolation=preset.interpolation.value,
                crop_fraction=crop_fraction(size, preset.resize_size[0]),
            )
            title = f"{preset.resize_size[0]} to {size}, {preset.interpolation.value}"
            yield Case("torchvision", title, (size, size), ours, lambda im, t=preset: t(im).numpy())


def hugging_face_cases() -> Iterator[Case]:
    """The image processors of transformers that are read, by their defaults, both backends.

    What is the same here is read from the file that the processor writes of itself.
    """
    import_timm()
    import transformers

    dinov2 = {"size": {"shortest_edge": 256}, "image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
    for name in preprocessor.DEFAULTS:
        for backend, suffix in (("PIL", "Pil"), ("tensors", "")):
            kind = getattr(transformers, f"{name}ImageProcessor{suffix}", None)
            if kind is not None:
                processor = kind(**dinov2 if name == "Bit" else {})
                yield _hugging_face_case(f"transformers, {backend}", processor, name)


def _hugging_face_case(library: str, processor: Any, name: str) -> Case:
    ours = preprocessor.read(json.loads(processor.to_json_string()), name, None)
    assert ours is not None, name
    if ours.max_patches is not None:
        title = f"{name}: {ours.max_patches} patches, {ours.interpolation}"
        return Case(library, title, (PATCH, PATCH), ours, lambda image: _of_patches(processor, image))
    assert ours.image_size is not None, name
    height, width = ours.image_size
    resized = ours.resized(ours.image_size)[0]

    def prepared(image: Image.Image) -> np.ndarray:
        return np.asarray(processor(image, return_tensors="np")["pixel_values"][0])

    size = f"{height}" if height == width else f"{height}x{width}"
    title = (
        f"{name}: {ours.crop_mode} {size if resized == height else f'{resized} to {size}'}, "
        + ours.interpolation
    )
    return Case(library, title, ours.image_size, ours, prepared)


def _of_patches(processor: Any, image: Image.Image) -> np.ndarray:
    """Put a processor's patches together again, (C, H, W)."""
    made = processor(image, return_tensors="np")
    rows, columns = made["spatial_shapes"][0]
    patches = made["pixel_values"][0][: rows * columns].reshape(rows, columns, PATCH, PATCH, -1)
    return patches.transpose(4, 0, 2, 1, 3).reshape(-1, rows * PATCH, columns * PATCH)


def prepared_here(case: Case, image: Image.Image) -> np.ndarray:
    """Prepare an image as this project does, (H, W, C) float32."""
    pixels = prepare(image, case.size, case.preprocess, (PATCH, PATCH))
    return case.preprocess.normalise(pixels[None])[0]


def compare(case: Case, shapes: Sequence[tuple[int, int]] = SHAPES) -> Difference:
    """Run both ways on images of several shapes."""
    scale = np.array(case.preprocess.std, np.float32) * 255  # back to grey levels
    equal, largest, means, shifted = 0, 0.0, [0.0], []
    for shape in shapes:
        image = picture(*shape)
        ours = prepared_here(case, image)
        theirs = case.prepared(image).transpose(1, 2, 0)
        if ours.shape != theirs.shape:
            raise SystemExit(f"{case.library}, {case.title}: {theirs.shape}, here {ours.shape}")
        equal += np.array_equal(ours, theirs)
        apart = np.abs(ours - theirs) * scale
        # one row or column further on, both would be the same picture
        moved = [np.abs(ours[:-1] - theirs[1:]) * scale, np.abs(ours[:, :-1] - theirs[:, 1:]) * scale]
        if apart.mean() > 1 and min(each.max() for each in moved) < 2:
            shifted.append(shape)
        else:
            largest, means = max(largest, float(apart.max())), [*means, float(apart.mean())]
    return Difference(equal, len(shapes), largest, max(means), tuple(shifted))


def odd_pictures() -> dict[str, Image.Image]:
    """Return pictures as cameras, scanners and drawing programs write them, by what is odd."""
    plain, file = picture(60, 90), io.BytesIO()
    turned = Image.Exif()
    turned[ORIENTATION] = 6
    plain.save(file, "JPEG", exif=turned)
    alpha = plain.copy()
    alpha.putalpha(plain.convert("L"))
    deep = np.arange(60 * 90, dtype=np.uint16).reshape(60, 90) * 12
    return {
        "grey": plain.convert("L"), "palette": plain.convert("P"), "black and white": plain.convert("1"),
        "CMYK": plain.convert("CMYK"), "RGBA": alpha, "grey, alpha": alpha.convert("LA"),
        "16 bits": Image.fromarray(deep), "turned": Image.open(file), "1 pixel high": picture(1, 90),
        "10x900": picture(10, 900), "900x10": picture(900, 10),
    }  # fmt: skip


def odd(case: Case, image: Image.Image) -> str:
    """Say how far a library's image is from ours, in grey levels; or who refuses it."""
    try:
        theirs = case.prepared(image).transpose(1, 2, 0)
    except (ValueError, RuntimeError):  # of three means for another number of channels
        return "they refuse"
    try:
        ours = prepared_here(case, image)
    except InputError:
        return "we refuse"
    if ours.shape != theirs.shape:
        return "another size"
    apart = float((np.abs(ours - theirs) * np.array(case.preprocess.std, np.float32)).max()) * 255
    return "0" if apart < ROUND_OFF else f"{apart:.1f}" if apart < 1 else f"{apart:.0f}"


def print_odd() -> None:
    """Print the table of odd pictures; classes of one row do the same with each."""
    pictures = odd_pictures()
    rows: dict[tuple[str, ...], list[str]] = {}
    for case in hugging_face_cases():
        cells = tuple(odd(case, image) for image in pictures.values())
        kind = f"{case.title.partition(':')[0]} ({case.library.rpartition(' ')[2]})"
        rows.setdefault(cells, []).append(kind)
    print(f"\n| transformers | {' | '.join(pictures)} |\n|---|{'--:|' * len(pictures)}")
    for cells, kinds in rows.items():
        print(f"| {', '.join(kinds)} | {' | '.join(cells)} |")


def main() -> int:
    """Print the tables: of each library's ways, all sizes together, and of odd pictures."""
    rows: dict[tuple[str, str], list[Difference]] = {}
    for case in (*timm_cases(), *torchvision_cases(), *hugging_face_cases()):
        title = case.title.partition(",")[0] + ", every filter" if case.library == "timm" else case.title
        rows.setdefault((case.library, title), []).append(compare(case))
    print("| library | way | equal | largest | mean | shifted |\n|---|---|--:|--:|--:|---|")
    for (library, title), differences in rows.items():
        equal, images = sum(each.equal for each in differences), sum(each.images for each in differences)
        worst, mean = max(each.largest for each in differences), max(each.mean for each in differences)
        shifted = dict.fromkeys(f"{h}x{w}" for each in differences for h, w in each.shifted)
        said = ", ".join(shifted) or "-"
        print(f"| {library} | {title} | {equal} of {images} | {worst:.2g} | {mean:.1g} | {said} |")
    print_odd()
    names = ("timm", "torchvision", "transformers", "pillow", "torch", "numpy")
    print("\n" + ", ".join(f"{name} {version(name)}" for name in names))
    return 0


if __name__ == "__main__":
    positional(__doc__)
    sys.exit(main())
