"""Mixup and cutmix: images of a batch are mixed with each other, and so are their labels."""

from __future__ import annotations

import math

import numpy as np

from vit_config.augmentation import Mix

Shares = np.ndarray
"""(B, classes): the share of each class in each image."""


def mixed(
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
    shares = labels if labels.ndim > 1 else np.eye(num_classes, dtype=images.dtype)[labels]
    if mix.style == "big_vision":
        return _next(images, shares, mix.mixup, rng)
    if mix.mode == "batch":
        return _whole(images, shares, mix, rng)
    return _each(images, shares, mix, rng)


def mixed_with(rows: np.ndarray, mix: Mix, batch_size: int) -> np.ndarray:
    """Return some rows of a batch and those that they are mixed with, in order."""
    others = (rows - 1) % batch_size if mix.style == "big_vision" else batch_size - 1 - rows
    return np.union1d(rows, others)


def _next(
    images: np.ndarray, shares: Shares, alpha: float, rng: np.random.Generator
) -> tuple[np.ndarray, Shares]:
    """Mix each image with the one before it, the first with the last, as Big Vision's `get_mixup`.
    There each device does so with its own share of the batch."""
    drawn = rng.beta(alpha, alpha)
    share = images.dtype.type(max(drawn, 1.0 - drawn))
    rest = images.dtype.type(1.0) - share
    return (
        share * images + rest * np.roll(images, 1, axis=0),
        share * shares + rest * np.roll(shares, 1, axis=0),
    )


def _whole(
    images: np.ndarray, shares: Shares, mix: Mix, rng: np.random.Generator
) -> tuple[np.ndarray, Shares]:
    """Mix image i with image B - 1 - i by one draw, as timm's `Mixup(mode="batch")`."""
    if rng.random() >= mix.probability:
        return images, shares
    cuts = bool(mix.cutmix) and (not mix.mixup or rng.random() < mix.cutmix_share)
    alpha = mix.cutmix if cuts else mix.mixup
    share = float(rng.beta(alpha, alpha))
    partners, number = images[::-1], images.dtype.type
    if share == 1.0:
        return images, shares
    if cuts:
        box, share = _box(images.shape[1:3], share, rng)
        images = images.copy()
        images[:, *box] = partners[:, *box]
    else:
        images = images * number(share) + partners * number(1.0 - share)
    return images, shares * number(share) + shares[::-1] * number(1.0 - share)


def _each(
    images: np.ndarray, shares: Shares, mix: Mix, rng: np.random.Generator
) -> tuple[np.ndarray, Shares]:
    """Mix as timm's `Mixup`: mode "elem" draws for each image, "pair" for each pair i, B - 1 - i."""
    batch = len(images)
    count = batch // 2 if mix.mode == "pair" else batch
    part, cuts = _draws(mix, count, rng)
    changed = images.copy()
    for i in range(count):
        partner = batch - 1 - i
        if part[i] == 1.0:
            continue
        targets = [(i, partner), (partner, i)] if mix.mode == "pair" else [(i, partner)]
        if cuts[i]:
            box, part[i] = _box(images.shape[1:3], float(part[i]), rng)
            for one, other in targets:
                changed[one, *box] = images[other, *box]
        else:
            for one, other in targets:
                changed[one] = images[one] * part[i] + images[other] * (np.float32(1) - part[i])
    share = np.concatenate([part, part[::-1]]) if mix.mode == "pair" else part
    share = share[:, None]
    return changed, shares * share + shares[::-1] * (np.float32(1) - share)


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
    size: tuple[int, ...], share: float, rng: np.random.Generator
) -> tuple[tuple[slice, slice], float]:
    """Draw a box of area 1 - `share` about a place anywhere in the image, cut at its borders; return
    it and the share of the image outside it."""
    height, width = size
    side = math.sqrt(1.0 - share)
    tall, wide = int(height * side), int(width * side)
    y, x = int(rng.integers(height)), int(rng.integers(width))
    top, bottom = max(y - tall // 2, 0), min(y + (tall + 1) // 2, height)
    left, right = max(x - wide // 2, 0), min(x + (wide + 1) // 2, width)
    left_over = 1.0 - (bottom - top) * (right - left) / (height * width)
    return (slice(top, bottom), slice(left, right)), left_over
