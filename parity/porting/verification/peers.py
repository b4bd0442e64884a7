"""Libraries imported so that they can be compared with."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

_declared: list[torch.library.Library] = []  # a Library takes its operators along when it is collected


def import_timm() -> ModuleType:
    """timm, with its fused attention off.

    timm imports torchvision. Where torchvision's compiled operators do not load, it stops at the two
    operators for which it registers a shape function without asking; declaring them is enough for timm.

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
