"""Mixup and cutmix: images of a batch are mixed with each other, and so are their labels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from vit_config.augmentation import Mix

Shares = np.ndarray
"""(B, classes): the share of each class in each image."""


class Mixing(NamedTuple):
    """The mixing of each image of a batch: (B,) or (B, 4) each."""

    partner: np.ndarray
    """The row of the image that it is mixed with."""
    share: np.ndarray
    """Its own share: of its label and, where no box is pasted, of each pixel."""
    rest: np.ndarray
    """The partner's share."""
    box: np.ndarray
    """Top, bottom, left and right of the partner's part that is pasted over it; empty for none."""

    @property
    def pasted(self) -> np.ndarray:
        """Whether a box is pasted, (B,)."""
        return (self.box[:, 1] > self.box[:, 0]) & (self.box[:, 3] > self.box[:, 2])

    def in_32_bits(self) -> dict[str, np.ndarray]:
        """Return the fields by name, as devices hold them."""
        share, rest = self.share.astype(np.float32), self.rest.astype(np.float32)
        return self._replace(share=share, rest=rest)._asdict()


def mix_batch(
    images: np.ndarray, labels: np.ndarray, mix: Mix, num_classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, Shares]:
    """Mix a batch.

    The loss smooths the labels: smoothing first and mixing then, as timm does, is the same.

    Args:
        images: (B, H, W, C), normalised.
        labels: (B,) integers, or (B, classes) shares already.

    Returns:
        The mixed images, and the shares of the classes in the images' type.
    """
    mixing = draw_mixing(mix, len(images), (images.shape[1], images.shape[2]), rng, images.dtype)
    return mixed_images(images, mixing), mixed_labels(labels, mixing, num_classes, images.dtype)


def mixed_images(images: np.ndarray, mixing: Mixing) -> np.ndarray:
    """Mix images (B, H, W, C) as drawn."""
    if (mixing.share == 1.0).all():
        return images
    pasted = mixing.pasted
    own, rest = (
        np.where(pasted, whole, part).astype(images.dtype)[:, None, None, None]
        for whole, part in ((1.0, mixing.share), (0.0, mixing.rest))
    )
    changed = images.copy() if pasted.all() else images * own + images[mixing.partner] * rest
    for i in np.flatnonzero(pasted):
        top, bottom, left, right = mixing.box[i]
        changed[i, top:bottom, left:right] = images[mixing.partner[i], top:bottom, left:right]
    return changed


def mixed_labels(labels: np.ndarray, mixing: Mixing, num_classes: int, dtype: Any) -> Shares:
    """Mix the labels of a batch, (B,) integers or (B, classes) shares."""
    shares = labels if labels.ndim > 1 else np.eye(num_classes, dtype=dtype)[labels]
    own, rest = (part.astype(dtype)[:, None] for part in (mixing.share, mixing.rest))
    return shares * own + shares[mixing.partner] * rest


def mixed_with(rows: np.ndarray, mix: Mix, batch_size: int) -> np.ndarray:
    """Return some rows of a batch and those that they are mixed with, in order."""
    return np.union1d(rows, _partners(mix, batch_size)[rows])


def draw_mixing(
    mix: Mix,
    batch_size: int,
    size: tuple[int, int],
    rng: np.random.Generator,
    dtype: np.dtype | type = np.float32,
) -> Mixing:
    """Draw how the images (H, W) of a batch are mixed: by one draw for all of them, as timm's
    `Mixup(mode="batch")` and Big Vision's `get_mixup` (there each device by one for its share of the
    batch); or by one for each image, or for each pair i, B - 1 - i, as timm's other modes."""
    box = np.zeros((batch_size, 4), np.int32)
    partner = _partners(mix, batch_size)
    if mix.style == "big_vision":
        drawn = rng.beta(mix.mixup, mix.mixup)
        part = np.full(batch_size, max(drawn, 1.0 - drawn), dtype)  # there in the images' type
        return Mixing(partner, part, np.ones_like(part) - part, box)
    if mix.mode == "batch":
        share = 1.0
        if rng.random() < mix.probability:
            cuts = bool(mix.cutmix) and (not mix.mixup or rng.random() < mix.cutmix_share)
            alpha = mix.cutmix if cuts else mix.mixup
            share = float(rng.beta(alpha, alpha))
            if cuts and share != 1.0:
                box[:], share = _box(size, share, rng)
        return Mixing(partner, np.full(batch_size, share), np.full(batch_size, 1.0 - share), box)
    count = batch_size // 2 if mix.mode == "pair" else batch_size
    part, cuts = _draws(mix, count, rng)
    for i in np.flatnonzero(cuts & (part != 1.0)):
        box[i], part[i] = _box(size, float(part[i]), rng)
    if mix.mode == "pair":
        part, box[count:] = np.concatenate([part, part[::-1]]), box[:count][::-1]
    return Mixing(partner, part, np.float32(1) - part, box)


def _partners(mix: Mix, batch_size: int) -> np.ndarray:
    """Return the row that each row of a batch is mixed with: in timm the one as far from the end, in Big
    Vision the one before it."""
    rows = np.arange(batch_size, dtype=np.int32)
    return (rows - 1) % batch_size if mix.style == "big_vision" else batch_size - 1 - rows


def _draws(mix: Mix, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw each image's remaining share, float32, and whether it is cut, in timm's order of draws."""
    cuts = np.full(count, bool(mix.cutmix))
    if mix.mixup and mix.cutmix:
        cuts = rng.random(count) < mix.cutmix_share
        pasted = rng.beta(mix.cutmix, mix.cutmix, count)
        drawn = np.where(cuts, pasted, rng.beta(mix.mixup, mix.mixup, count))
    else:
        alpha = mix.cutmix or mix.mixup
        drawn = rng.beta(alpha, alpha, count)
    whole = rng.random(count) >= mix.probability
    return np.where(whole, np.float32(1), drawn.astype(np.float32)), cuts


def _box(
    size: tuple[int, int], share: float, rng: np.random.Generator
) -> tuple[tuple[int, int, int, int], float]:
    """Draw a box of area 1 - `share` about a place anywhere in the image, cut at its borders; return
    its top, bottom, left and right, and the share of the image outside it."""
    height, width = size
    side = math.sqrt(1.0 - share)
    tall, wide = int(height * side), int(width * side)
    y, x = int(rng.integers(height)), int(rng.integers(width))
    top, bottom = max(y - tall // 2, 0), min(y + (tall + 1) // 2, height)
    left, right = max(x - wide // 2, 0), min(x + (wide + 1) // 2, width)
    left_over = 1.0 - (bottom - top) * (right - left) / (height * width)
    return (top, bottom, left, right), left_over
