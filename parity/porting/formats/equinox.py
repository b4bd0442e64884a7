"""Equinox's files: the leaves of a model's tree, arrays of numpy one behind the other, without names.

The names come from the structure that Equimo's ``metadata.json`` beside them tells: the arguments of its
VisionTransformer. Its archives (``.tar.lz4``) are unpacked in memory.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from parity.porting.formats.base import Container, Progress, Stored, lying_at
from parity.porting.formats.budget import Budget
from parity.porting.formats.lz4 import read_archive
from parity.porting.formats.npz import array_header, npy_header
from parity.porting.formats.weights_folder import read_json
from vit_config.errors import WeightsError
from vit_config.files.foreign import MOST_ENTRIES, parse_json
from vit_config.files.safetensors_stream import ignore, write_tensor
from vit_config.files.stored import guarded

KIND, METADATA, WEIGHTS = "Equinox", "metadata.json", "weights.eqx"
VERSION = "1.1.0"
"""Equimo's version whose tree this is; that of 1.0 has other arguments."""
DEFAULTS: Mapping[str, Any] = {
    "class_token": True, "reg_tokens": 4, "use_mask_token": False, "use_global_pos_embed": True,
    "use_local_pos_embed": False, "local_pos_embed_reg": False, "pos_drop_rate": 0.0,
    "drop_path_rate": 0.0, "drop_path_uniform": False, "qkv_bias": True, "proj_bias": True,
    "qk_norm": False, "attn_drop": 0.0, "proj_drop": 0.0, "ffn_layer": "mlp", "ffn_bias": True,
    "untie_global_and_local_cls_norm": False, "init_values": None, "num_classes": 1000,
}  # fmt: skip
"""Arguments of Equimo's VisionTransformer that decide on its tree, with their defaults."""
NAMELESS = (
    "holds arrays of numpy one after the other and no names, as Equinox's tree_serialise_leaves writes"
    f" them; put the {METADATA} beside it that equimo.io.save_model writes, or save the arrays by name,"
    " as .npz or safetensors"
)
LAYERS = {"mlp": ("fc1", "fc2"), "swiglu": ("w1", "w2", "w3"), "swiglufused": ("w12", "w3")}
"""Layers of its kinds of MLP."""
_LEAF = 500
"""Bytes of memory for what is known of a leaf."""


class EquinoxLeaf(NamedTuple):
    """A leaf of the tree."""

    name: str
    value: float | bool | None = None
    """Value of a number, which is no weight; None of an array."""


def leaves(arguments: Mapping[str, Any]) -> Iterator[EquinoxLeaf]:
    """Yield the leaves of Equimo's VisionTransformer in the order of its tree, blocks numbered through.

    Args:
        arguments: those of its constructor.
    """
    arguments = {**DEFAULTS, **arguments}

    def layer(name: str, bias: bool = True) -> Iterator[EquinoxLeaf]:
        yield EquinoxLeaf(f"{name}.weight")
        yield from [EquinoxLeaf(f"{name}.bias")] * bool(bias)

    def drop(name: str, rate: float) -> Iterator[EquinoxLeaf]:
        yield from (EquinoxLeaf(f"{name}.p", float(rate)), EquinoxLeaf(f"{name}.inference", False))

    def tokens(*names: str) -> Iterator[EquinoxLeaf]:
        flags = (arguments["class_token"], arguments["reg_tokens"], arguments["use_mask_token"])
        yield from (EquinoxLeaf(name) for name, flag in zip(names, flags, strict=True) if flag)

    def block(name: str, rate: float) -> Iterator[EquinoxLeaf]:
        yield from (*layer(f"{name}.prenorm"), *layer(f"{name}.norm"))
        yield from (
            EquinoxLeaf(f"{name}.{scale}.gamma") for scale in ("ls1", "ls2") if arguments["init_values"]
        )
        yield from layer(f"{name}.attn.qkv", arguments["qkv_bias"])
        yield from layer(f"{name}.attn.proj", arguments["proj_bias"])
        for norm in ("q_norm", "k_norm") if arguments["qk_norm"] else ():
            yield from layer(f"{name}.attn.{norm}")
        yield from drop(f"{name}.attn.attn_drop", arguments["attn_drop"])
        yield from drop(f"{name}.attn.proj_drop", arguments["proj_drop"])
        for each in LAYERS[arguments["ffn_layer"]]:
            yield from layer(f"{name}.mlp.{each}", arguments["ffn_bias"])
        for each in ("mlp.drop1", "mlp.drop2"):
            yield from drop(f"{name}.{each}", arguments["proj_drop"])
        for each in ("drop_path1", "drop_path2"):
            yield from drop(f"{name}.{each}", rate)

    yield from layer("patch_embed.proj")
    yield from [EquinoxLeaf("global_pos_embed.weight")] * bool(arguments["use_global_pos_embed"])
    yield from [EquinoxLeaf("local_pos_embed.patch_rope.freqs")] * bool(arguments["use_local_pos_embed"])
    if arguments["use_local_pos_embed"] and arguments["local_pos_embed_reg"] and arguments["reg_tokens"]:
        yield EquinoxLeaf("local_pos_embed.reg_rope.freqs")
    yield from tokens("cls_token", "reg_tokens", "mask_token")
    depth, last = sum(arguments["depths"]), arguments["drop_path_rate"]
    for i in range(depth):
        share = 1.0 if arguments["drop_path_uniform"] else i / max(depth - 1, 1)
        yield from block(f"blocks.{i}", last * share)
    yield from drop("pos_drop", arguments["pos_drop_rate"])
    yield from layer("norm")
    if arguments["untie_global_and_local_cls_norm"]:
        yield from layer("local_cls_norm")
    if arguments["num_classes"]:
        yield from layer("head")


def read_equinox(path: Path, budget: Budget) -> Container:
    """Open the file of a model with ``metadata.json`` beside it; tensors are read when they are loaded.

    Raises:
        WeightsError: nothing tells the structure, or the leaves are not those of it.
    """
    metadata = path.parent / METADATA
    if not metadata.is_file():
        raise WeightsError(f"{path}: {NAMELESS}")
    with guarded(path, KIND):
        return _named(path, lambda: path.open("rb"), path.stat().st_size, read_json(metadata), budget)


def read_equimo(path: Path, budget: Budget) -> Container:
    """Open an archive that `equimo.io.save_model` packed. WeightsError: see `read_equinox`."""
    with guarded(path, "archive of Equimo"):
        members = read_archive(path, budget)
        if not {WEIGHTS, METADATA} <= {*members}:
            names = ", ".join(members)
            raise WeightsError(f"holds {names:.200}, not {METADATA} and {WEIGHTS}; unpack it")
        weights, parsed = members[WEIGHTS], parse_json(members[METADATA].decode(), entries=MOST_ENTRIES)
        return _named(path, lambda: io.BytesIO(weights), len(weights), parsed, budget)


def _named(path: Path, opened: Any, size: int, metadata: Any, budget: Budget) -> Container:
    arguments = metadata.get("model_config") if isinstance(metadata, dict) else None
    if not isinstance(arguments, dict) or not isinstance(arguments.get("depths"), list):
        raise WeightsError(f"its {METADATA} tells of no VisionTransformer of Equimo (no depths)")
    version = str(metadata.get("equimo_version"))
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise WeightsError(
            f"is of Equimo {version:.40}, whose leaves may have another order than those of {VERSION};"
            f" load it by Equimo {VERSION}, and save it again"
        )
    with opened() as file:
        arrays = list(_arrays(path, file, opened, size, budget))
    names = list(islice(leaves(arguments), len(arrays) + 1))
    if len(names) != len(arrays):
        more = "more" if len(names) > len(arrays) else len(names)
        raise WeightsError(
            f"has {len(arrays)} leaves, Equimo's VisionTransformer of its {METADATA} {more}"
        )
    for leaf, array in zip(names, arrays, strict=True):
        if (leaf.value is None) != bool(array.shape):
            raise WeightsError(
                f"{leaf.name} has shape {array.shape}; it is no VisionTransformer of its {METADATA}"
            )
    tensors = {leaf.name: array for leaf, array in zip(names, arrays, strict=True) if array.shape}
    return Container(path, (path,), KIND, tensors, sidecars={METADATA: metadata})


def _arrays(path: Path, file: BinaryIO, opened: Any, size: int, budget: Budget) -> Iterator[Stored]:
    while (begin := file.tell()) < size:
        budget.objects(_LEAF)
        shape, fortran, dtype = array_header(file, f"the array at byte {begin}")
        start, nbytes = file.tell(), math.prod(shape) * dtype.itemsize
        if fortran or dtype.kind in "SU" or start + nbytes > size:
            raise ValueError(f"the array at byte {begin}, {shape} of {dtype}, is not whole, or no leaf")
        yield lying_at(opened, start, shape, dtype, path)
        file.seek(start + nbytes)


def write_equinox(
    file: BinaryIO,
    tensors: Mapping[str, Stored],
    files: Mapping[str, str],
    progress: Progress = ignore,
) -> None:
    """Write the leaves of Equimo's VisionTransformer in the order of its tree.

    Args:
        files: the text of ``metadata.json`` by that name, with the arguments of its constructor.
        progress: called with the number of bytes just written.

    Raises:
        ConfigError: the file cannot hold these types.
        WeightsError: a tensor cannot be read.
    """
    arguments = json.loads(files[METADATA])["model_config"]
    for name, value in leaves(arguments):
        stored = tensors[name] if value is None else Stored.of(np.asarray(value))
        if name.endswith(".freqs"):  # of its constructor's type, whatever that of the weights is
            stored = Stored.of(stored.load().astype(np.float32))
        file.write(npy_header(name, stored))
        write_tensor(file.write, name, stored, progress)
