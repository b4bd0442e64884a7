"""All styles that can be built here; Haiku and Equinox where they are installed."""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import cache

from evidence.clean_pairs import (
    as_torchvision,
    clip,
    dinov3,
    in_custom_gradients,
    in_einops,
    in_jax,
    in_linen,
    in_nnx,
    in_torch,
    in_torch_functions,
    libraries,
    siglip,
)
from evidence.clean_pairs.style import Style


@cache
def styles() -> dict[str, Style]:
    """Name -> style, torch's first."""
    every = [
        *libraries.STYLES, *as_torchvision.STYLES, *in_torch.STYLES, *in_einops.STYLES,
        *in_torch_functions.STYLES, *clip.STYLES,
        *in_jax.STYLES, *in_custom_gradients.STYLES, *in_linen.STYLES, *in_nnx.STYLES,
        *siglip.STYLES, *dinov3.STYLES,
    ]  # fmt: skip
    for name in ("in_haiku", "in_equinox"):
        with suppress(ModuleNotFoundError):
            every += importlib.import_module(f"evidence.clean_pairs.{name}").STYLES
    return {each.name: each for each in sorted(every, key=lambda s: not s.torch)}
