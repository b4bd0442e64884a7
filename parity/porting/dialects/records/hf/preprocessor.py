"""Reading and writing ``preprocessor_config.json``: preprocessing by the classes of transformers.

Preprocessing that a `Preprocess` cannot express (padding, other scales, varying sizes) is read as
unknown, never approximated; what none of these classes does (a centre crop that is not square, bars) is
not written. Where a crop drops an odd number of pixels, its place may differ by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vit_config import ConfigError, Preprocess
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD, crop_fraction

FILE = "preprocessor_config.json"
HALF = (0.5, 0.5, 0.5)
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Filters in the order of PIL's numbers."""


def _defaults(
    size: Any, resample: int, mean: tuple | None, std: tuple | None, *, crop: int | None = None
) -> dict[str, Any]:
    return {
        "size": size, "resample": resample, "image_mean": mean, "image_std": std,
        "do_center_crop": crop is not None, "crop_size": crop,
    }  # fmt: skip


SHORT = {"shortest_edge": 224}
DEFAULTS = {
    "ViT": _defaults(224, 2, HALF, HALF),
    "DeiT": _defaults(256, 3, HALF, HALF, crop=224),
    "Beit": _defaults(224, 3, HALF, HALF),
    "Bit": _defaults(SHORT, 3, CLIP_MEAN, CLIP_STD, crop=224),
    "CLIP": _defaults(SHORT, 3, CLIP_MEAN, CLIP_STD, crop=224),
    "ChineseCLIP": _defaults(SHORT, 3, CLIP_MEAN, CLIP_STD, crop=224),
    "Llava": _defaults(SHORT, 3, CLIP_MEAN, CLIP_STD, crop=224),
    "Blip": _defaults(384, 3, CLIP_MEAN, CLIP_STD),
    "GotOcr2": _defaults(384, 3, CLIP_MEAN, CLIP_STD),
    "OwlViT": _defaults(768, 3, CLIP_MEAN, CLIP_STD),
    "Gemma3": _defaults(224, 2, HALF, HALF),
    "Tipsv2": {**_defaults(448, 2, None, None), "do_normalize": False},
    "Sapiens2": _defaults({"height": 1024, "width": 768}, 2, IMAGENET_MEAN, IMAGENET_STD),
    "DINOv3ViT": _defaults(224, 2, IMAGENET_MEAN, IMAGENET_STD),
    "Siglip": _defaults(224, 3, HALF, HALF),
    "Siglip2": {**_defaults(None, 2, HALF, HALF), "max_num_patches": 256},
}
"""Defaults of each class for missing entries."""
OF_PATCHES = "Siglip2ImageProcessor"
"""The class that makes patches of images of any size."""
BEYOND = ("do_pad", "do_pan_and_scan", "crop_to_patches")
"""Switches of the classes for what a `Preprocess` cannot express."""
SHORTEST = ("Bit", "CLIP", "ChineseCLIP", "Llava")
"""Classes for which a size of one number means the shorter side, not both."""


def read(content: Any, default: str, image_size: tuple[int, int] | None) -> Preprocess | None:
    """Read the preprocessing from a file's content.

    Args:
        content: the parsed file; None if there is none.
        default: the class if the file names none.
        image_size: the model's height and width in pixels, if known.

    Returns:
        The preprocessing; None if it is unknown or a `Preprocess` cannot express it.
    """
    if not isinstance(content, dict):
        return None
    kind = _kind(content.get("image_processor_type") or content.get("feature_extractor_type") or default)
    if kind not in DEFAULTS:
        return None
    entries = {**DEFAULTS[kind], **{name: value for name, value in content.items() if value is not None}}
    try:
        fitted = _fitted(entries, kind, image_size)
        if fitted is None or not _plain(entries):
            return None
        scale, mean, std = _scale(entries), (0.0,) * 3, (1.0,) * 3
        if entries.get("do_normalize", True):
            mean, std = (tuple(entries[name]) for name in ("image_mean", "image_std"))
        return Preprocess(
            mean=tuple(each / scale for each in mean),
            std=tuple(each / scale for each in std),
            interpolation=dict(enumerate(RESAMPLE))[entries["resample"]],
            **fitted,
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError, ConfigError):
        return None


def entries(
    preprocess: Preprocess, image_size: tuple[int, int], patch_size: tuple[int, int]
) -> dict[str, Any] | None:
    """Return the content of a file that states the same; None if no class of the library does that."""
    if (most := preprocess.max_patches) is not None:
        fit = {"patch_size": patch_size[0], "max_num_patches": most}
        return _content("Siglip2", fit, preprocess) if patch_size[0] == patch_size[1] else None
    image_size = preprocess.image_size or image_size
    size = _sides(*preprocess.resized(image_size))
    crop = {"do_center_crop": True, "crop_size": _sides(*image_size)}
    if preprocess.crop_mode == "squash":
        kind = "ViT" if preprocess.crop_fraction == 1 else "DeiT"
        fit = {"size": size, **(crop if kind == "DeiT" else {})}
    elif preprocess.crop_mode == "center" and image_size[0] == image_size[1]:
        kind, fit = "Bit", {"size": {"shortest_edge": size["height"]}, **crop}
    else:
        return None
    return _content(kind, fit, preprocess)


def _content(kind: str, fit: Mapping[str, Any], preprocess: Preprocess) -> dict[str, Any]:
    return {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_resize": True,
        **fit,
        "resample": RESAMPLE.index(preprocess.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocess.mean),
        "image_std": list(preprocess.std),
    }


def _kind(name: Any) -> str:
    """Strip the suffixes of a class name: ``CLIPImageProcessorFast`` is ``CLIP``."""
    name = str(name).removesuffix("Fast").removesuffix("Pil")
    return name.removesuffix("ImageProcessor").removesuffix("FeatureExtractor")


def _plain(entries: Mapping[str, Any]) -> bool:
    """Return whether each image is resized, not padded, and not cut into several."""
    return bool(entries.get("do_resize", True) and not any(entries.get(name) for name in BEYOND))


def _scale(entries: Mapping[str, Any]) -> float:
    """Return what white, 255, becomes before mean and deviation apply; in a `Preprocess` it is 1."""
    white = 255 * (entries.get("rescale_factor", 1 / 255) if entries.get("do_rescale", True) else 1.0)
    return 1.0 if math.isclose(white, 1.0) else white


def _fitted(
    entries: Mapping[str, Any], kind: str, image_size: tuple[int, int] | None
) -> dict[str, Any] | None:
    """Return a `Preprocess`'s fields for resizing and cropping; None if it cannot express them."""
    if kind == "Siglip2":
        return {"max_patches": entries["max_num_patches"]}
    size, crop = entries["size"], entries["crop_size"] if entries["do_center_crop"] else None
    if entries["do_center_crop"] and crop is None:
        return None  # the library refuses that
    if isinstance(size, int):
        size = {"shortest_edge": size} if kind in SHORTEST else _sides(size, size)
    if isinstance(crop, int):
        crop = _sides(crop, crop)
    if size.keys() == {"height", "width"}:
        crop, mode = crop or size, "squash"
        shares = {crop_fraction(crop[side], size[side]) for side in ("height", "width")}
    elif size.keys() == {"shortest_edge"} and crop and crop["height"] == crop["width"]:
        mode, shares = "center", {crop_fraction(crop["height"], size["shortest_edge"])}
    else:
        return None
    made = crop["height"], crop["width"]
    own = {} if made == image_size else {"image_size": made}
    return {"crop_mode": mode, "crop_fraction": shares.pop(), **own} if len(shares) == 1 else None


def _sides(height: int, width: int) -> dict[str, int]:
    return {"height": height, "width": width}
