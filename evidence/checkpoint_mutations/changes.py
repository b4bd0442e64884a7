"""What may happen to a checkpoint on its way: bytes lost, tensors lost, config files edited.

A mutation changes a copy of a checkpoint's folder in place and says what it did. `rewrite` writes
tensors as each ecosystem's own library does.
"""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.formats import open_container
from parity.porting.formats.comment import pack
from parity.porting.formats.weights_folder import SIDECARS

KINDS = {".safetensors": "safetensors", ".npz": "npz", ".msgpack": "msgpack"}


class Mutation(NamedTuple):
    """The change, in words."""

    kind: str
    """Name such as "bytes", "retype one", "entry"."""
    what: str
    """The tensor, the entry of a config file, or where."""


# Bytes


def change_bytes(rng: random.Random, weights: Path) -> Mutation:
    """Cut the file off, change up to three bytes, or put in or take out some; half the time near an end,
    where the tables of contents are."""
    content = bytearray(weights.read_bytes())
    near = rng.choice((0, 0, 2000, -2000))
    start, stop = (0, len(content)) if not near else (0, 2000) if near > 0 else (-2000, 0)
    place = rng.randrange(max(start + (len(content) if start < 0 else 0), 0), stop or len(content))
    kind = rng.choice(("cut", "flip", "flip", "flip", "set", "set", "insert", "remove"))
    if kind == "cut":
        del content[place:]
    elif kind == "insert":
        content[place:place] = rng.randbytes(rng.randrange(1, 9))
    elif kind == "remove":
        del content[place : place + rng.randrange(1, 9)]
    else:
        for at in {min(place + rng.choice((0, 1, 5, 80)), len(content) - 1) for _ in range(3)}:
            content[at] = content[at] ^ 1 << rng.randrange(8) if kind == "flip" else rng.randrange(256)
    weights.write_bytes(content)
    return Mutation("bytes", f"{kind} at {place} of {len(content)}")


# Tensors


def rewrite(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None) -> None:
    """Write tensors as that ecosystem's own library does; of safetensors with this metadata."""
    kind = KINDS.get(path.suffix, "torch")
    if kind == "safetensors":
        from safetensors.numpy import save_file

        save_file(dict(tensors), path, metadata)
    elif kind == "npz":
        np.savez(path, **tensors)  # pyright: ignore[reportArgumentType]
    elif kind == "msgpack":
        from flax.serialization import msgpack_serialize
        from flax.traverse_util import unflatten_dict

        path.write_bytes(msgpack_serialize(unflatten_dict(dict(tensors), sep="/")))
    else:
        import torch

        def at(name: str, value: torch.Tensor, tree: dict[str, Any]) -> None:
            wrapper, dot, inner = name.partition(".")
            if wrapper in ("model", "state_dict") and dot:  # as the authors of DeiT and MAE do
                tree, name = tree.setdefault(wrapper, {}), inner
            tree[name] = value

        tree: dict[str, Any] = {}
        for name, array in tensors.items():
            at(name, torch.from_numpy(np.array(array)), tree)
        torch.save(tree, path)


Change = Callable[[random.Random, dict[str, np.ndarray], str], str]
"""Changes the tensors, one of them above all; returns what else was involved."""


def _drop(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    del tensors[name]
    return ""


def _drop_block(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    """The last block, wherever it is numbered."""
    last = [each for each in tensors if any(word in each for word in (".2.", "_2/", "_2.", "/2/"))]
    for each in last or [name]:
        del tensors[each]
    return "the last block"


def _rename(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    """Another leaf, a spelling error, or the place of another block."""
    number = ".0." if ".0." in name else "_0/" if "_0/" in name else ".1."
    new = rng.choice((
        f"{name}_old", f"x.{name}", name.replace("weight", "bias"), name.replace("bias", "weight"),
        name.replace(number, number.replace("0", "7")), name.replace("norm1", "norm2"), name[:-1],
        name.replace("encoder", "decoder"), name.upper(), f"{name}\nx",
    ))  # fmt: skip
    tensors[new] = tensors.pop(name)
    return new


def _transpose(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    tensors[name] = np.ascontiguousarray(tensors[name].T)
    return ""


def _reshape(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    array = tensors[name]
    shapes = [(*array.shape, 1), (1, *array.shape), (array.size,), (array.size, 1)]
    if array.ndim > 1:
        shapes += [array.shape[::-1], (array.shape[0] * array.shape[1], *array.shape[2:])]
    tensors[name] = array.reshape(rng.choice(shapes))
    return ""


def _cut_off(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    """A row or a column less, or one of zeros more."""
    array = tensors[name]
    if not array.ndim:
        return "nothing"
    axis = rng.randrange(array.ndim)
    if rng.random() < 0.5:
        tensors[name] = np.ascontiguousarray(np.delete(array, 0, axis))
    else:
        tensors[name] = np.pad(array, [(0, int(at == axis)) for at in range(array.ndim)])
    return ""


def _retype_one(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    kind = rng.choice(("float64", "float16", "int32", "bool"))
    tensors[name] = tensors[name].astype(kind)
    return kind


def _retype_all(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    kind = rng.choice(("float64", "float16", "int32"))
    tensors.update({each: array.astype(kind) for each, array in tensors.items()})
    return kind


def _swap(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    """Swap a tensor with one of another shape."""
    others = [each for each in tensors if tensors[each].shape != tensors[name].shape]
    if others:
        other = rng.choice(others)
        tensors[name], tensors[other] = tensors[other], tensors[name]
        return other
    return ""


def _add(rng: random.Random, tensors: dict[str, np.ndarray], name: str) -> str:
    new = rng.choice((f"{name}.extra", "blocks.1.attn.q_norm.weight", "reg_token", "dist_token", "step"))
    tensors[new] = tensors[name].copy()
    return new


TENSORS: dict[str, Change] = {
    "drop": _drop, "drop block": _drop_block, "rename": _rename, "transpose": _transpose,
    "reshape": _reshape, "resize": _cut_off, "retype one": _retype_one, "retype all": _retype_all,
    "swap": _swap, "add": _add,
}  # fmt: skip


def change_tensors(
    rng: random.Random, weights: Path, *, keep_header: bool, kind: str | None = None
) -> Mutation:
    """Write the file anew with other tensors.

    Args:
        keep_header: a safetensors header's metadata, or the comment of a zip archive, stays as it was,
            as if the file had been edited in place.
    """
    container = open_container(weights)
    tensors = {name: np.array(stored.load()) for name, stored in container.tensors.items()}
    kind = kind or rng.choice(list(TENSORS))
    candidates = sorted(tensors)
    if kind == "transpose":
        candidates = [n for n in candidates if tensors[n].T.shape != tensors[n].shape] or candidates
    name = rng.choice(candidates)
    what = TENSORS[kind](rng, tensors, name)
    rewrite(weights, tensors, dict(container.metadata) if keep_header else None)
    if keep_header and KINDS.get(weights.suffix) not in ("safetensors", "msgpack"):
        keep_comment(weights, container.metadata)
    return Mutation(kind, f"{name} {what}".strip())


def keep_comment(path: Path, metadata: Mapping[str, str]) -> None:
    """Put what a zip archive of this project said of itself into another."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = pack(metadata)


# Config files

ENTRIES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu_new", "relu", "quick_gelu", "silu", "gelu_fast", None, 3),
    "num_attention_heads": (2, 1, 10, 4, 0, -5, "5", None, 5.0),
    "image_size": (16, 32, 25, [24, 16], 0, "24", None, [24]),
    "patch_size": (4, 16, [8, 4], 0, None, "8"),
    "num_labels": (2, 8),
    "architectures": (["ViTModel"], ["ViTForImageClassification"], [], None, "ViTModel", 3),
    "model_type": ("vit", "deit", "dinov2", "vit_mae", "vit_msn", "siglip_vision_model", "bert", None),
    "architecture": ("vit_small_patch16_224", "resnet50", "eva02_tiny_patch14_224"),
    "qkv_bias": (False, True, None),
    "interpolation": ("bicubic", "nearest", "bilinear", "weird"),
    "crop_mode": ("center", "border", "squash"),
    "image_processor_type": ("BitImageProcessor", "ViTImageProcessorFast", "DeiTImageProcessor", "X"),
    "global_pool": ("avg", "map", "token", ""),
}  # fmt: skip
"""Other plausible and implausible values of some entries; any other gets one of its own kind."""


def change_config(rng: random.Random, sidecar: Path) -> Mutation:
    """Edit one entry of a JSON file, however deep; or remove it; or spoil or delete the file."""
    text = sidecar.read_text(encoding="utf-8")
    kind = rng.choice(
        (*["entry"] * 10, *["drop entry"] * 3, "cut", "not JSON", "empty", "delete", "list")
    )
    if kind == "delete":
        sidecar.unlink()
    elif kind in ("cut", "not JSON", "empty", "list"):
        spoilt = {"cut": text[: rng.randrange(1, len(text) - 2)], "not JSON": text.replace(":", "=", 1),
                  "empty": "", "list": rng.choice(("[]", "3", "null", "{}"))}  # fmt: skip
        sidecar.write_text(spoilt[kind], encoding="utf-8")
    else:
        content = json.loads(text)
        path = _random_path(rng, content)
        *outer, last = path
        inner = content
        for key in outer:
            inner = inner[key]
        name = ".".join(map(str, path))
        if kind == "drop entry":
            del inner[last]
        else:
            before = inner[last]
            while (new := _other(rng, str(last), before)) == before and type(new) is type(before):
                pass
            inner[last] = new
            name += f" = {json.dumps(new)[:40]} was {json.dumps(before)[:40]}"
        sidecar.write_text(json.dumps(content), encoding="utf-8")
        return Mutation(kind, f"{sidecar.name}: {name}")
    return Mutation(f"{kind} file", sidecar.name)


def _random_path(rng: random.Random, content: Any) -> tuple[Any, ...]:
    key = rng.choice(list(content) if isinstance(content, dict) else range(len(content)))
    deeper = content[key]
    if isinstance(deeper, dict | list) and deeper and rng.random() < 0.7:
        return (key, *_random_path(rng, deeper))
    return (key,)


def _other(rng: random.Random, key: str, value: Any) -> Any:
    if key in ENTRIES and rng.random() < 0.8:
        return rng.choice(ENTRIES[key])
    odd = (None, "x", "a\nb", [], {}, -1, 1.5, True, float("nan"), 10**400)
    if rng.random() < 0.15:
        return rng.choice(odd)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value * 2, max(value - 1, 0), 0))
    if isinstance(value, float):
        return rng.choice((value * 10, value / 2, value + 0.25, 1.0))
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, list):
        return rng.choice(([*value, *value[:1]], value[:-1], value[::-1]))
    if isinstance(value, dict):
        return dict(list(value.items())[:-1])
    return rng.choice(odd)


def change(rng: random.Random, folder: Path, weights: str, *, signed: bool) -> Mutation:
    """Change the copy of a checkpoint in a folder in any way.

    Args:
        weights: the name of the file with the tensors.
        signed: whether it says what it is, in a header or comment; that is kept.
    """
    sidecars = [folder / name for name in SIDECARS if (folder / name).is_file()]
    kind = rng.choice(("bytes", "tensors", *["config"] * bool(sidecars)))
    if kind == "bytes":
        return change_bytes(rng, folder / weights)
    if kind == "config":
        return change_config(rng, rng.choice(sidecars))
    return change_tensors(rng, folder / weights, keep_header=signed)
