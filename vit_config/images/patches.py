"""Images of any size as patches in one padded batch: cutting, padding, and a size within a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_config.errors import InputError
from vit_config.grids import nearest_sizes


class Patches(NamedTuple):
    """A padded batch of images as patches: arrays (JAX) or tensors (PyTorch)."""

    pixels: Any
    """(B, N, ph * pw * C): each patch in (row, column, channel) order, whatever order the model has."""
    coordinates: Any
    """(B, N, 2) integers: row and column of each patch in its image's grid."""
    valid: Any
    """(B, N) bool: false for padding, which changes nothing. An image of padding alone is allowed, and
    its output has no meaning."""


def cut(image: np.ndarray, patch_size: tuple[int, int]) -> np.ndarray:
    """Cut an image (H, W, C) into patches (gh, gw, ph * pw * C).

    Raises:
        InputError: not whole patches.
    """
    if image.ndim != 3:
        raise InputError(f"an image has shape {image.shape}, expected (H, W, C)")
    (H, W, C), (ph, pw) = image.shape, patch_size
    if not H or not W or H % ph or W % pw:
        raise InputError(
            f"the image is {H}x{W}, not divisible by patch_size = {patch_size}; "
            + nearest_sizes((H, W), patch_size)
        )
    pieces = image.reshape(H // ph, ph, W // pw, pw, C).swapaxes(1, 2)
    return pieces.reshape(H // ph, W // pw, ph * pw * C)


def collate(
    images: Sequence[np.ndarray],
    patch_size: tuple[int, int],
    lengths: int | Sequence[int] | None = None,
) -> Patches:
    """Cut images into patches, and pad them to one length.

    Args:
        images: (H, W, C) each, normalised, each of any size that patches divide.
        lengths: the length, or those of which the shortest that holds every image is taken, so that a
            compiled program meets few shapes; None is the longest image's.

    Returns:
        A batch of numpy arrays, zero where there is padding.

    Raises:
        InputError: no image, an image that is not whole patches, or one with more patches than the
            greatest length.
    """
    if not images:
        raise InputError("no images given; give at least one")
    grids = [cut(image, patch_size) for image in images]
    counts = [gh * gw for gh, gw, _ in (grid.shape for grid in grids)]
    longest = max(counts)
    allowed = (lengths,) if isinstance(lengths, int) else lengths or (longest,)
    length = min((each for each in allowed if each >= longest), default=None)
    if length is None:
        index = counts.index(longest)
        rows, columns, _ = grids[index].shape
        raise InputError(
            f"image {index} has {rows}x{columns} = {longest} patches, the length is {max(allowed)}; give"
            " more, or resize the image (max_patches of its preprocessing)"
        )
    pixels = np.zeros((len(grids), length, grids[0].shape[2]), np.result_type(*grids))
    coordinates = np.zeros((len(grids), length, 2), np.int32)
    valid = np.zeros((len(grids), length), bool)
    for index, (grid, count) in enumerate(zip(grids, counts, strict=True)):
        if grid.shape[2] != pixels.shape[2]:
            raise InputError(
                f"image {index} has patches of {grid.shape[2]} values, image 0 of {pixels.shape[2]};"
                " give all images the same channels"
            )
        pixels[index, :count] = grid.reshape(count, -1)
        coordinates[index, :count] = np.indices(grid.shape[:2]).reshape(2, -1).T
        valid[index, :count] = True
    return Patches(pixels, coordinates, valid)


_FINEST, _LARGEST = 1e-5, 100.0  # of the search below, as in timm and transformers


def size_within(size: tuple[int, int], patch_size: tuple[int, int], most: int) -> tuple[int, int]:
    """Return the largest size of whole patches, proportions about kept, with at most `most` patches.

    The search, its rounding up and its end are those of timm's ``get_image_size_for_seq`` and of
    transformers' ``Siglip2ImageProcessor`` (after Big Vision, arXiv 2502.14786).

    Args:
        size: height and width of the image in pixels.
        most: at least 1.

    Raises:
        InputError: one side is so much longer that no scale fits.
    """

    def scaled(scale: float) -> tuple[int, int]:
        height, width = (
            int(max(patch, math.ceil(side * scale / patch) * patch))
            for side, patch in zip(size, patch_size, strict=True)
        )
        return height, width

    def count(scale: float) -> int:
        height, width = scaled(scale)
        return (height // patch_size[0]) * (width // patch_size[1])

    low, high = _FINEST / 10, _LARGEST
    while high - low >= _FINEST:
        middle = (low + high) / 2
        low, high = (middle, high) if count(middle) <= most else (low, middle)
    if count(low) > most:
        raise InputError(
            f"an image of {size[0]}x{size[1]} pixels has {count(low)} patches of {patch_size[0]}x"
            f"{patch_size[1]} at the smallest, max_patches = {most}; cut the image, or allow more"
        )
    return scaled(low)
