"""`vit_config.images.pixels.fit` as array operations, for use inside exported programs.

PIL resizes in integers: coefficients of 22 fractional bits, pixels rounded to 8 bits after either pass.
Products and sums of those are exact in float64, whatever the order, so the result is PIL's. JAX and
PyTorch trace the same code; numpy runs it directly.
"""

from __future__ import annotations

import math
from typing import Any

from vit_config import Preprocess

_ONE = float(2**22)
"""The integer that PIL uses for a coefficient of 1."""
_SUPPORT = {"box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0}
"""Support of each filter, in pixels of the smaller image. Nearest is missing: PIL accumulates its pixel
coordinates one after another, and no array operation is known to round alike."""
FILTERS = tuple(_SUPPORT)


def fit(xp: Any, images: Any, size: tuple[int, int], preprocess: Preprocess) -> Any:
    """Resize images and crop their centre.

    Args:
        xp: `numpy`, `jax.numpy` or `torch`.
        images: (B, C, h, w) whole numbers 0 to 255 as float64; h and w may be symbolic.
        size: (H, W) in pixels.

    Returns:
        (B, C, H, W) whole numbers as float64.
    """
    lines = [xp.arange(images.shape[axis], dtype=xp.float64) for axis in (2, 3)]
    have = [each[-1] + 1 for each in lines]
    resized = _resized(xp, have, size, preprocess)
    first = [_corner(xp, full - want) for full, want in zip(resized, size, strict=True)]
    places = [xp.arange(want, dtype=xp.float64) + begin for want, begin in zip(size, first, strict=True)]
    indices = [xp.clip(at, 0 * full, full - 1) for at, full in zip(places, resized, strict=True)]
    rows, columns = (
        _coefficients(xp, *each, preprocess.interpolation)
        for each in zip(lines, have, resized, indices, strict=True)
    )  # (H, h), (W, w)
    columns = xp.moveaxis(columns, 0, 1)  # (w, W)
    rows_last = _rounded(xp, rows @ _rounded(xp, images @ columns))
    columns_last = _rounded(xp, _rounded(xp, rows @ images) @ columns)
    fitted = xp.where(_rows_first(have, resized), columns_last, rows_last)
    if preprocess.crop_mode != "border":
        return fitted
    inside = [(at >= 0) & (at < full) for at, full in zip(places, resized, strict=True)]
    colour = [float(min(max(round(255 * each), 0), 255)) for each in preprocess.mean]
    bars = xp.asarray(colour, dtype=xp.float64)
    return xp.where(inside[0][:, None] & inside[1][None, :], fitted, bars[:, None, None])


def normalise(xp: Any, pixels: Any, preprocess: Preprocess) -> Any:
    """Normalise pixels (B, C, H, W) as `Preprocess.normalise` does, in float32."""
    mean, std = (
        xp.asarray(each, dtype=xp.float32)[:, None, None] for each in (preprocess.mean, preprocess.std)
    )
    return (pixels / xp.asarray(255.0, dtype=xp.float32) - mean) / std


def _corner(xp: Any, over: Any) -> Any:
    """Return where a centre crop that drops `over` pixels begins; negative if the line is too short."""
    return xp.where(over < 0, -xp.floor(-over / 2), xp.round(over / 2))


def _rows_first(have: list[Any], resized: list[Any]) -> Any:
    """Return whether PIL reduces the height before the width: it does where the height loses more than
    twice as many pixels (found by trying Pillow 13.0.0, whose source was not read)."""
    fewer, narrower = (before - after for before, after in zip(have, resized, strict=True))
    return (fewer > 0) & (fewer > 2 * narrower)


def _resized(xp: Any, have: list[Any], size: tuple[int, int], preprocess: Preprocess) -> list[Any]:
    """Compute `vit_config.images.pixels.resized_size` for a height and a width that are arrays."""
    cover = preprocess.resized(size)
    if preprocess.crop_mode == "squash":
        return [0 * side + want for side, want in zip(have, cover, strict=True)]
    if preprocess.crop_mode == "center" and cover[0] == cover[1]:
        shorter = xp.minimum(*have)
        return [xp.floor(cover[0] * side / shorter) for side in have]
    ratios = [side / want for side, want in zip(have, cover, strict=True)]
    ratio = (xp.maximum if preprocess.crop_mode == "border" else xp.minimum)(*ratios)
    return [xp.maximum(xp.round(side / ratio), 0 * side + 1) for side in have]


def _coefficients(xp: Any, line: Any, have: Any, resized: Any, places: Any, name: str) -> Any:
    """Compute the weight of each input pixel in each output pixel of a resized line, times `_ONE`.

    Args:
        line: (n,) indices of the input pixels.
        have, resized: length of the line before and after resizing.
        places: (m,) indices of the output pixels wanted.

    Returns:
        (m, n) float64 whole numbers.
    """
    scale = have / resized
    centers = ((places + 0.5) * scale)[:, None]  # (m, 1)
    line = line[None]  # (1, n)
    wider = xp.maximum(scale, 0 * scale + 1)
    support = _SUPPORT[name] * wider
    begin, end = xp.floor(centers - support + 0.5), xp.floor(centers + support + 0.5)
    weights = _filter(xp, name, (line - centers + 0.5) * (1 / wider))
    weights = xp.where((line >= begin) & (line < end), weights, 0 * weights)
    weights = weights / weights.sum(1)[:, None]
    return xp.sign(weights) * xp.floor(xp.abs(weights) * _ONE + 0.5)


def _filter(xp: Any, name: str, x: Any) -> Any:
    """Evaluate PIL's filter at the distances `x`."""
    far = xp.abs(x)
    if name == "box":
        return xp.where((x > -0.5) & (x <= 0.5), 0 * x + 1, 0 * x)
    if name == "bilinear":
        return xp.where(far < 1, 1 - far, 0 * x)
    if name == "bicubic":
        a = -0.5
        near = ((a + 2) * far - (a + 3)) * far * far + 1
        beyond = (((far - 5) * far + 8) * far - 4) * a
        return xp.where(far < 1, near, xp.where(far < 2, beyond, 0 * x))
    if name == "hamming":
        angle = math.pi * far
        return xp.where(far < 1, _sinc(xp, far) * (0.54 + 0.46 * xp.cos(angle)), 0 * x)
    return xp.where((x >= -3) & (x < 3), _sinc(xp, x) * _sinc(xp, x / 3), 0 * x)


def _sinc(xp: Any, x: Any) -> Any:
    """Compute sin(pi x) / (pi x), 1 at 0."""
    angle = math.pi * xp.where(x == 0, 0 * x + 1, x)
    return xp.where(x == 0, 0 * x + 1, xp.sin(angle) / angle)


def _rounded(xp: Any, sums: Any) -> Any:
    """Round sums of pixels times coefficients to 8-bit pixels."""
    return xp.clip(xp.floor((sums + _ONE / 2) / _ONE), 0, 255)
