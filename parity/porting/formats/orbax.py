"""Orbax checkpoints: folders that orbax reads, one tensor at a time. The only kind that needs JAX."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parity.porting.formats.base import Container, Stored, guarded
from parity.porting.formats.budget import folder_budget
from parity.porting.formats.flatten import Flat
from vit_config.errors import MissingFileError, WeightsError
from vit_config.files.foreign import parse_json, read_text
from vit_config.files.lasting import lasting
from vit_config.files.stored import checked_shape

_TREE = "_METADATA"
_STEP = re.compile(r"(?:[A-Za-z_.-]*[_.-])?(\d+)")
_MOST_LEAVES = 50_000
"""Most leaves of a tree, of which each takes orbax seven kilobytes."""
_ITEMS = ("default", "params", "state", "model")


class OrbaxTree(NamedTuple):
    """The tree of tensors in a folder."""

    item: Path
    step: str
    """The step that was chosen, in words; empty if the folder has no steps."""


def find_checkpoint(folder: Path) -> OrbaxTree | None:
    """Find the tree of tensors in a folder: the folder itself, one of its items, or an item of a step.

    Of several steps the newest is taken.

    Returns:
        The tree; None if the folder is not Orbax's.

    Raises:
        MissingFileError: a step has several items, none with a usual name; the message lists them.
    """
    if (folder / _TREE).is_file():
        return OrbaxTree(folder, "")
    if item := _item(folder):
        return OrbaxTree(item, "")
    steps = {
        int(match[1]): item
        for each in folder.iterdir()
        if each.is_dir() and (match := _STEP.fullmatch(each.name)) and (item := _item(each, itself=True))
    }
    if not steps:
        return None
    newest = max(steps)
    return OrbaxTree(steps[newest], f" (step {newest}, the newest of {len(steps)})")


def read_orbax(checkpoint: OrbaxTree) -> Container:
    """Open the tree of a checkpoint; orbax reads a tensor when it is loaded.

    Raises:
        MissingFileError: orbax is not installed.
        WeightsError: the checkpoint is damaged.
    """
    try:
        import jax
        import orbax.checkpoint as ocp
        from etils import epath
    except ImportError as error:
        raise MissingFileError(
            f"{checkpoint.item}: an Orbax checkpoint, which takes orbax to read ({error});"
            " pip install 'vit-parity[jax]'"
        ) from None
    item, handler = epath.Path(checkpoint.item.absolute()), ocp.PyTreeCheckpointHandler()
    with guarded(checkpoint.item, "Orbax checkpoint"):
        files = (lasting(checkpoint.item),)
        _check_tree(parse_json(read_text(checkpoint.item / _TREE)))
        tree = handler.metadata(item).tree
        leaves, structure = jax.tree_util.tree_flatten(tree, is_leaf=_is_leaf)
        kinds = [str if isinstance(each, ocp.metadata.StringMetadata) else np.ndarray for each in leaves]
        described_as = ocp.metadata.StringMetadata, ocp.metadata.ScalarMetadata
        small = {index for index, each in enumerate(leaves) if isinstance(each, described_as)}

        def restore(chosen: Collection[int]) -> list[Any]:
            targets = [leaf if at in chosen else ocp.PLACEHOLDER for at, leaf in enumerate(leaves)]
            arguments = ocp.args.PyTreeRestore(
                item=structure.unflatten(targets),
                restore_args=structure.unflatten([ocp.RestoreArgs(restore_type=each) for each in kinds]),
            )
            with guarded(checkpoint.item, "Orbax checkpoint"):
                restored = handler.restore(item, args=arguments)
                return jax.tree_util.tree_flatten(restored, is_leaf=_is_leaf)[0]

        numbers, read = iter(range(len(leaves))), restore(small) if small else []

        def leaf(described: Any) -> Any:
            index = next(numbers)
            if index in small:
                return read[index] if kinds[index] is str else np.asarray(read[index]).item()
            if isinstance(described, ocp.metadata.ArrayMetadata):
                dtype = np.dtype(described.dtype)
                shape = checked_shape(tuple(described.shape), dtype.itemsize)
                return Stored(
                    shape, dtype, lambda: _array(checkpoint, restore({index})[index], shape, dtype)
                )
            return described

        flat = Flat("/", folder_budget(checkpoint.item))
        flat.add("", jax.tree_util.tree_map(leaf, tree, is_leaf=_is_leaf))
    return Container(checkpoint.item, files, f"orbax{checkpoint.step}", flat.tensors, flat.objects)


def _check_tree(described: Any) -> None:
    """Refuse a tree for whose parts orbax would take too much memory. ValueError: it has too many."""
    leaves = described.get("tree_metadata") if isinstance(described, dict) else None
    if isinstance(leaves, dict) and len(leaves) > _MOST_LEAVES:
        raise ValueError(f"{len(leaves)} leaves; no checkpoint has more than {_MOST_LEAVES}")


def _array(checkpoint: OrbaxTree, array: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    array = np.asarray(array, order="C")
    if array.shape != shape or array.dtype != dtype:
        raise WeightsError(
            f"{checkpoint.item}: a tensor is {array.dtype} of shape {array.shape}, its description says"
            f" {dtype} of shape {shape}; copy the checkpoint again"
        )
    return array


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, dict | list | tuple) or not value


def _item(step: Path, *, itself: bool = False) -> Path | None:
    """Return the item of a step that holds the tensors; None if there is none."""
    if itself and (step / _TREE).is_file():
        return step
    trees = sorted(each.name for each in step.iterdir() if (each / _TREE).is_file())
    # a manager's steps are folders with a tree, too: so a number is not taken for an item's name
    items = [name for name in trees if not _STEP.fullmatch(name)]
    chosen = [name for name in _ITEMS if name in items] or (items if len(items) == 1 else [])
    if items and not chosen:
        raise MissingFileError(
            f"{step}: several items, {', '.join(items)}; give the folder of one of them"
        )
    return step / chosen[0] if chosen else None
