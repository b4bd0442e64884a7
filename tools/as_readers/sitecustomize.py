"""Lets pages and notebooks say ``import timm``, as readers do, where torchvision does not match torch.

The compiled operators of such a torchvision do not load, and its import stops at those for which it
registers a shape function without asking. Declaring them is enough for timm. A torchvision that loads is
left alone.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

_declared = []  # a Library takes its operators along when it is collected


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            spec = PathFinder.find_spec(name, path)
            if spec and spec.origin:
                _declare_what_does_not_load(Path(spec.origin).parent / "_C.so")


def _declare_what_does_not_load(operators: Path) -> None:
    import torch

    try:
        torch.ops.load_library(operators)
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)


sys.meta_path.insert(0, _BeforeTorchvision())
