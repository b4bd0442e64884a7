"""Ten families of models beyond ViT: a tiny one of timm or transformers, and a port of it in JAX.

Each module has `original()`, the library's model with drawn weights and its inputs, and `port(model)`,
the same function as someone would write it in JAX, with the weights of that model. The ports differ in
style: plain functions, Linen, NNX, scan, vmap, channels first and last, packed and split projections.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from parity.porting.reading.libraries.peers import import_timm

NAMES = (
    "convnext", "swin", "resnet", "clip_text", "bert", "llama", "gemma", "t5", "detr", "mixer",
)  # fmt: skip


def family(name: str) -> ModuleType:
    """The module of a family."""
    import_timm()  # before transformers looks for torchvision
    return importlib.import_module(f"evidence.families.{name}")
