"""What is done to images before the first product: normalisation, order of channels, flips."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.verifier.diagnose.catalogue.computation import Aspect, Computation, Option, Values
from parity.verifier.diagnose.catalogue.tensors import sources
from parity.verifier.diagnose.segment import Segment
from vit_config.images.preprocess import IMAGENET_MEAN, IMAGENET_STD

Affine = tuple[np.ndarray, np.ndarray]
"""Factor and shift of each channel."""

_KNOWN = {
    "ImageNet's mean and deviation": (IMAGENET_MEAN, IMAGENET_STD),
    "mean and deviation 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "CLIP's mean and deviation": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
}
_MOST_CHANNELS = 4


def affines(channels: int, fitted: Affine | None) -> tuple[Option, ...]:
    """Known ways to scale pixels, and a fitted one."""
    one = np.ones(channels)
    found = [Option("pixels as they are", (one, 0 * one), torch="x", jax="x")]
    for words, (mean, deviation) in _KNOWN.items():
        if channels == 3:
            m, s = np.array(mean), np.array(deviation)
            found.append(Option(f"pixels normalised by {words}", (1 / s, -m / s)))
            found.append(Option(f"pixels un-normalised by {words}", (s, m)))
    found += [
        Option("pixels divided by 255", (one / 255, 0 * one)),
        Option("pixels times 255", (one * 255, 0 * one)),
        Option("pixels / 127.5 - 1", (one / 127.5, -one)),
    ]
    if fitted is not None and not any(_alike(fitted, option.value) for option in found):
        factor, shift = (", ".join(f"{x:.4g}" for x in part) for part in fitted)
        found.append(Option(f"pixels times ({factor}) plus ({shift})", fitted))
    return tuple(found)


CHANNELS = (Option("channels in order", 1), Option("channels reversed, RGB as BGR", -1))


def _alike(x: Affine, y: Affine) -> bool:
    return all(np.allclose(p, q, rtol=1e-4, atol=1e-5) for p, q in zip(x, y, strict=True))


def computations(segment: Segment) -> Iterator[Computation]:
    """Images of the result's shape (B, H, W, C), scaled, flipped or with other channels."""
    shape = segment.result.shape
    if len(shape) != 4 or shape[-1] > _MOST_CHANNELS:
        return
    x = next((x for _, x in sources(segment) if x.shape == shape), None)
    if x is None:
        return
    flips = (
        Option("images upright", (1, 1)),
        Option("images upside down", (-1, 1)),
        Option("images mirrored", (1, -1)),
        Option("images turned by 180 degrees", (-1, -1)),
    )
    aspects = (
        Aspect("pixels", "input-normalisation", affines(shape[-1], _fitted(x, segment.result))),
        Aspect("channels", "channel-order", CHANNELS),
        Aspect("flip", "image-flip", flips),
    )

    def compute(v: Values) -> np.ndarray:
        factor, shift = v["pixels"]
        rows, columns = v["flip"]
        return x[:, ::rows, ::columns, :: v["channels"]] * factor + shift

    yield Computation("pixels", aspects, compute)


def _fitted(x: np.ndarray, result: np.ndarray) -> Affine:
    axes = (0, 1, 2)
    mean, other = x.mean(axes), result.mean(axes)
    with np.errstate(all="ignore"):
        factor = ((x - mean) * (result - other)).mean(axes) / ((x - mean) ** 2).mean(axes)
    return factor, other - factor * mean
