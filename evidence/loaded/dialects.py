"""A model of one library and a file of another: the names do not tell, or not all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flax import traverse_util

import vit_jax
from evidence.loaded.case import Case, Situation
from parity.measure.redraw import redraw
from parity.porting.formats import open_container
from parity.porting.reading.libraries.peers import import_timm
from parity.porting.writing.conversion import convert
from vit_config import ViTConfig
from vit_config.files.weights_file import write_weights
from vit_config.parameters import parameters
from vit_torch.weights import from_numpy

Arrays = dict[str, np.ndarray]
CFG = ViTConfig(image_size=(24, 24), patch_size=(8, 8), in_channels=3, hidden_size=24, depth=3,
                num_heads=2, mlp_dim=40, num_classes=7)  # fmt: skip

OF_TANH = ("google", "google-linen", "big-vision-scan", "bonsai-vit")
"""Dialects that have the other GELU; here numbers alone count."""


def drawn() -> Arrays:
    """Return parameters as if they were trained, in float32."""
    specs = parameters(CFG).items()
    return {name: redraw(name, spec.kind, spec.shape, 0).astype(np.float32) for name, spec in specs}


def fresh() -> Arrays:
    """Return parameters that are not trained: norms of ones, biases and the class token of zeros."""
    values = drawn()
    return {
        name: np.ones_like(each) if "norm" in name and name.endswith("weight")
        else np.zeros_like(each) if name.endswith("bias") or name == "cls_token" else each
        for name, each in values.items()
    }  # fmt: skip


def converted(arrays: Arrays, to: str, folder: Path) -> Path:
    """Write parameters in a dialect."""
    folder.mkdir(parents=True, exist_ok=True)
    cfg = CFG.replace(act="gelu_tanh") if to in OF_TANH else CFG
    write_weights(folder / "own.safetensors", cfg, arrays)
    if to == "parity":
        return folder / "own.safetensors"
    if to == "own names":
        return _by_own_names(arrays, folder)
    return convert(folder / "own.safetensors", to=to, out=folder / "out").path


def _by_own_names(arrays: Arrays, folder: Path) -> Path:
    """A file of somebody's own JAX code, which nothing here reads as a Vision Transformer."""
    tree = {}
    for name, each in arrays.items():
        words = name.replace("blocks.", "trunk.layer_").split(".")
        if "qkv" in words:
            for part, one in zip(("query", "key", "value"), np.split(each, 3), strict=True):
                tree["/".join([*words[:-2], part, "w" if each.ndim == 2 else "b"])] = one.T
            continue
        last = {"weight": "w", "bias": "b"}.get(words[-1], words[-1])
        axes = {2: (1, 0), 4: (2, 3, 1, 0)}.get(each.ndim, range(each.ndim))
        tree["/".join([*words[:-1], last])] = each.transpose(*axes)
    np.savez(folder / "own.npz", **tree)
    return folder / "own.npz"


def _timm(arrays: Arrays, folder: Path) -> Any:
    sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2}
    model = import_timm().create_model("vit_tiny_patch16_224", num_classes=7, mlp_ratio=40 / 24, **sizes)
    model.load_state_dict({name: from_numpy(each) for name, each in arrays.items()})
    return model


def _hf(arrays: Arrays, folder: Path) -> Any:
    import_timm()
    from transformers import ViTForImageClassification

    return ViTForImageClassification.from_pretrained(converted(arrays, "hf-vit", folder / "hf"))


def _torchvision(arrays: Arrays, folder: Path) -> Any:
    import_timm()
    from torchvision.models import VisionTransformer

    path = converted(arrays, "torchvision", folder / "tv")
    model = VisionTransformer(24, 8, 3, 2, 24, 40, num_classes=7)
    model.load_state_dict(torch.load(next(path.glob("*.pth")) if path.is_dir() else path))
    return model


def _nnx(arrays: Arrays, folder: Path) -> Any:
    return vit_jax.from_arrays(CFG, arrays)


def _linen(arrays: Arrays, folder: Path) -> Any:
    """Variables of Google's Linen module."""
    path = converted(arrays, "google-linen", folder / "linen")
    flat = {name: each.load() for name, each in open_container(path).tensors.items()}
    return {"params": traverse_util.unflatten_dict(flat, sep="/")}


MODELS: Mapping[str, tuple[str, Callable[[Arrays, Path], Any]]] = {
    "timm": ("timm", _timm),
    "ViTForImageClassification": ("transformers", _hf),
    "torchvision's ViT": ("torchvision", _torchvision),
    "an NNX ViT": ("flax nnx", _nnx),
    "a Linen ViT": ("flax linen", _linen),
}
FILES = ("timm-vit", "hf-vit", "torchvision", "google", "big-vision-scan", "keras-hub-vit",
         "hf-flax-vit", "bonsai-vit", "own names")  # fmt: skip


def _exchange_rows(arrays: Arrays, block: int) -> None:
    for leaf in ("weight", "bias"):
        name = f"blocks.{block}.attn.qkv.{leaf}"
        q, k, v = np.split(arrays[name], 3)
        arrays[name] = np.concatenate([k, q, v])


def _exchange(arrays: Arrays, one: str, other: str) -> None:
    for name in [each for each in arrays if each.startswith(f"{one}.")]:
        twin = other + name[len(one) :]
        arrays[name], arrays[twin] = arrays[twin], arrays[name]


def _each(change: Callable[[Arrays, int], None]) -> Callable[[Arrays], None]:
    def all_blocks(arrays: Arrays) -> None:
        for block in range(CFG.depth):
            change(arrays, block)

    return all_blocks


def _turn(arrays: Arrays) -> None:
    name = "blocks.1.attn.proj.weight"
    arrays[name] = np.ascontiguousarray(arrays[name].T)


def _draw(arrays: Arrays, *names: str) -> None:
    rng = np.random.default_rng(5)
    for name in names:
        new = rng.normal(0, 0.02, arrays[name].shape).astype(np.float32)
        arrays[name] = np.zeros_like(new) if name.endswith("bias") else new


CHANGES: Mapping[str, Callable[[Arrays], None]] = {
    "queries and keys exchanged in one block": lambda arrays: _exchange_rows(arrays, 1),
    "queries and keys exchanged in all blocks": _each(_exchange_rows),
    "two blocks exchanged": lambda arrays: _exchange(arrays, "blocks.1", "blocks.2"),
    "two norms exchanged in one block": lambda arrays: _exchange(
        arrays, "blocks.1.norm1", "blocks.1.norm2"
    ),
    "a square matrix not transposed": _turn,
    "the head new": lambda arrays: _draw(arrays, "head.weight", "head.bias"),
    "a bias lost": lambda arrays: _draw(arrays, "blocks.2.mlp.fc1.bias"),
    "positions lost": lambda arrays: _draw(arrays, "pos_embed"),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield each model with each file, loaded rightly, and with one mistake in turn."""
    number = 0
    for name, (library, make) in MODELS.items():
        for file in FILES:
            for values in (drawn, fresh) if file in ("hf-vit", "big-vision-scan") else (drawn,):
                young = "" if values is drawn else " of an untrained model"
                yield Case(library, f"{name} from {file}{young}", True, _case(make, file, values, None))
            change = list(CHANGES)[number % len(CHANGES)]
            number += 1
            yield Case(library, f"{name} from {file}: {change}", False, _case(make, file, drawn, change))


def _case(
    make: Callable[[Arrays, Path], Any], file: str, values: Callable[[], Arrays], change: str | None
) -> Callable[[Path], Situation]:
    def build(folder: Path) -> Situation:
        path = converted(values(), file, folder / "file")
        arrays = values()
        if change is not None:
            CHANGES[change](arrays)
        return Situation(make(arrays, folder), path)

    return build
