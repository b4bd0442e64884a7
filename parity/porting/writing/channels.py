"""A model for images of another number of channels: the patch projection's weights, by a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from parity.porting.dialects.rewrites import ModelState
from parity.porting.dialects.transfer import change_when_read
from parity.porting.formats.metadata import Metadata
from vit_config import ConfigError, Preprocess, ViTConfig
from vit_config.errors import UnstatedError

Rule = Literal["repeat", "sum", "mean-scale", "zeros"]

WEIGHT = "patch_embed.proj.weight"


def _repeat(old: np.ndarray, new: int) -> np.ndarray:
    """Repeat the channels in order, scaled so that the sum of all stays: timm's rule for several."""
    return old[:, np.arange(new) % old.shape[1]] * (old.shape[1] / new)


def _sum(old: np.ndarray, new: int) -> np.ndarray:
    """Add all channels: timm's rule for one."""
    return old.sum(axis=1, keepdims=True)


def _mean_scale(old: np.ndarray, new: int) -> np.ndarray:
    """Give each channel the same share of the sum."""
    return np.repeat(_sum(old, new) / new, new, axis=1)


def _zeros(old: np.ndarray, new: int) -> np.ndarray:
    """Keep the channels and add some that change nothing."""
    return np.pad(old, ((0, 0), (0, new - old.shape[1]), (0, 0), (0, 0)))


RULES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "repeat": _repeat, "sum": _sum, "mean-scale": _mean_scale, "zeros": _zeros,
}  # fmt: skip
"""Functions by name; each makes (D, N, h, w) of a kernel (D, C, h, w)."""


def with_channels(
    state: ModelState, metadata: Metadata, channels: int | None, by: str | None
) -> tuple[ModelState, Metadata]:
    """Return the model and its preprocessing for another number of channels.

    The preprocessing may have the new number already; it is then what the user states.

    Raises:
        ConfigError: no such rule, or one that does not make this number.
        UnstatedError: mean and standard deviation of the new channels are unknown.
    """
    if channels is None or by is None:
        if by is not None:
            raise ConfigError(f"--by {by}: how many channels? give --channels N, too")
        if channels is not None:
            raise ConfigError(f"--channels {channels}: by which rule? give --by {', '.join(RULES)}")
        return state, metadata
    _check(state.config, channels, by)
    before, old = state.config, state.config.in_channels
    if channels == old:
        return state, metadata
    rule = RULES[by]
    cfg = before.replace(in_channels=channels)

    def change(weight: np.ndarray) -> np.ndarray:
        kernel = rule(_kernel(weight, before).astype(np.float64), channels)
        return _flat(kernel, cfg).astype(weight.dtype)

    stored = state.arrays[WEIGHT]
    shape = (cfg.hidden_size, channels, *cfg.patch_size)
    shape = shape if cfg.patch_embed == "conv" else (cfg.hidden_size, cfg.patch_dim)
    note = f"{old} channels to {channels} by {by}"
    state = state.rewritten(
        note, {"in_channels": channels}, {WEIGHT: change_when_read(stored, change, shape)}
    )
    pixels = metadata.pixels and _extended(metadata.pixels, old, channels, by)
    return state, metadata.replace(pixels=pixels)


def _check(cfg: ViTConfig, channels: int, by: str) -> None:
    if by not in RULES:
        raise ConfigError(f"--by {by}: expected one of {', '.join(RULES)}")
    old = cfg.in_channels
    if channels < 1:
        raise ConfigError(f"--channels {channels}: must be at least 1")
    if cfg.patch_input_norm:
        raise ConfigError(
            f"--channels {channels}: its patches are normalised over all {old} channels before the"
            " projection, so that no rule for its weights keeps anything"
        )
    if by == "sum" and channels != 1:
        raise ConfigError(f"--channels {channels} --by sum: makes one channel; give --by mean-scale")
    if by == "repeat" and channels == 1:
        raise ConfigError("--channels 1 --by repeat: would drop all but one; give --by sum")
    if by == "zeros" and channels < old:
        raise ConfigError(f"--channels {channels} --by zeros: fewer than the {old} that it has")


def _kernel(weight: np.ndarray, cfg: ViTConfig) -> np.ndarray:
    """Return the projection as a convolution's kernel (D, C, h, w)."""
    (h, w), C = cfg.patch_size, cfg.in_channels
    if cfg.patch_embed == "linear_hwc":
        return weight.reshape(-1, h, w, C).transpose(0, 3, 1, 2)
    return weight.reshape(-1, C, h, w)


def _flat(kernel: np.ndarray, cfg: ViTConfig) -> np.ndarray:
    """Return a kernel (D, C, h, w) as the projection's weight."""
    if cfg.patch_embed == "conv":
        return kernel
    order = kernel.transpose(0, 2, 3, 1) if cfg.patch_embed == "linear_hwc" else kernel
    return order.reshape(len(kernel), -1)


def _extended(pixels: Preprocess, old: int, new: int, by: str) -> Preprocess:
    """Return the preprocessing with mean and deviation of each new channel."""
    given = len(pixels.mean)
    if given == new:
        return pixels
    if given != old:
        raise ConfigError(
            f"the preprocessing has {given} channels, the model {old}, and --channels makes {new}; give"
            f" --preprocess FILE with mean and std of {new}"
        )
    pairs = tuple(zip(pixels.mean, pixels.std, strict=True))
    if by != "repeat" and len(set(pairs)) > 1:
        raise UnstatedError(
            f"mean = {pixels.mean} and std = {pixels.std} are of {old} channels, and --by {by} does not"
            f" say those of {new}; give --preprocess FILE with mean and std of {new}"
        )
    mean, std = zip(*(pairs[k % old] for k in range(new)), strict=True)
    return pixels.replace(mean=mean, std=std)
