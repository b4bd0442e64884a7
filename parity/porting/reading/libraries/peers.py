"""Imports of libraries to compare with."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

_declared: list[torch.library.Library] = []  # a collected Library removes its operators


def import_timm() -> ModuleType:
    """Import timm, with its fused attention off.

    timm imports torchvision. If torchvision's compiled operators do not load, its import fails at two
    operators for which it registers a shape function unconditionally; declaring them is enough for timm.

    Raises:
        ModuleNotFoundError: timm is not installed; it is in the extra ``peers``.
    """
    try:
        import timm
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        import timm
    layers: Any = timm.layers
    layers.set_fused_attn(False)
    return timm
