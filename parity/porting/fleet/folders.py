"""Search for the checkpoints, files or folders, below a folder; each is found once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from parity.porting.fleet.ledger import LEDGER
from parity.porting.formats.orbax import find_checkpoint
from parity.porting.formats.suffixes import INDEX, NAMED
from parity.porting.formats.tensorstore import is_tensorstore
from parity.porting.formats.weights_folder import SIDECARS, TASK, WEIGHTS
from vit_config import MissingFileError
from vit_config.files.foreign import parse_json, read_text

COMPANIONS = (
    "optimizer*",
    "scheduler*",
    "scaler*",
    "rng_state*",
    "random_states_*",
    "training_args.bin",
)
"""Files that trainers keep beside the weights, as shell patterns."""


class CheckpointPath(NamedTuple):
    """A checkpoint's path."""

    path: Path
    problem: str | None = None
    """Why the checkpoint must not be read; None if it may."""


@dataclass
class FolderWalk:
    """The checkpoints below a folder, and counts of what was left out."""

    places: list[CheckpointPath] = field(default_factory=list)
    """Checkpoints in the order of their paths."""
    others: int = 0
    """Number of files without a checkpoint's suffix."""
    links: int = 0
    """Number of links not followed: to folders, out of the folder, or to files found anyway."""
    outputs: int = 0
    """Number of folders left out because an earlier conversion wrote them."""


def walk(root: Path) -> FolderWalk:
    """Find the checkpoints below a folder, which may be one itself.

    A folder of Hugging Face, timm, OpenCLIP, the Trainer or Orbax is one checkpoint; shards with their
    index are one; every other file with a checkpoint's suffix is one. Hidden files and folders are
    skipped. A link to a file inside of `root` counts; other links are not followed.
    """
    result = FolderWalk()

    def unreadable(error: OSError) -> None:
        result.places.append(CheckpointPath(Path(error.filename), f"cannot be read ({error.strerror})"))

    for name, folders, files in os.walk(root, onerror=unreadable):
        folder = Path(name)
        shown = [each for each in folders if not each.startswith(".")]
        folders[:] = [each for each in shown if not (folder / each).is_symlink()]
        result.links += len(shown) - len(folders)
        if LEDGER in files:
            result.outputs += 1
            folders.clear()
        elif _is_orbax(folder, files) or is_tensorstore(folder):
            result.places.append(CheckpointPath(folder))
            folders.clear()
        else:
            names = [each for each in sorted(files) if not each.startswith(".")]
            _sort(folder, names, root.resolve(), result)
    result.places.sort(key=lambda place: place.path.relative_to(root).parts)
    return result


def _is_orbax(folder: Path, files: Sequence[str]) -> bool:
    """Return whether a folder is one checkpoint of Orbax: a tree of tensors, or a step with its items.

    A folder of steps is not one checkpoint: each step is one.
    """
    if "_METADATA" in files:
        return True
    try:
        return "_CHECKPOINT_METADATA" in files and find_checkpoint(folder) is not None
    except MissingFileError:  # several items, none with a usual name: each is found separately
        return False


def _sort(folder: Path, names: Sequence[str], root: Path, result: FolderWalk) -> None:
    """Add the checkpoints among the files of one folder."""
    left = dict.fromkeys(names)

    def take(path: Path, files: Iterable[str]) -> None:
        files = [name for name in files if left.pop(name, name) is None]
        out = [name for name in files if not _inside(folder / name, root)]
        result.places.append(
            CheckpointPath(path, f"{out[0]} is a link out of the folder" if out else None)
        )

    shards = {name: _shards(folder, name, names) for name in names if INDEX.fullmatch(name)}
    if left.keys() & set(WEIGHTS) and left.keys() & set(SIDECARS):
        around = [name for name in names if any(fnmatchcase(name, each) for each in COMPANIONS)]
        take(
            folder,
            [*WEIGHTS, TASK, *SIDECARS, *around, *(name for each in shards.values() for name in each)],
        )
    for index, files in shards.items():
        if index in left:
            take(folder / index, [index, *files])
    for name in left:
        path = folder / name
        if not name.endswith(NAMED):
            result.others += 1
        elif path.is_symlink() and (not _inside(path, root) or _is_walked(path, root)):
            result.links += 1
        else:
            result.places.append(CheckpointPath(path))


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _is_walked(link: Path, root: Path) -> bool:
    """Return whether the target of a link is found under its own name."""
    parts = link.resolve().relative_to(root).parts
    return parts[-1].endswith(NAMED) and not any(part.startswith(".") for part in parts)


def _shards(folder: Path, index: str, names: Sequence[str]) -> list[str]:
    """Return the files that an index lists, and those named like its shards, for a damaged index."""
    parts = INDEX.fullmatch(index)
    assert parts is not None
    whole = re.escape(f"{parts['stem']}{parts['variant'] or ''}")
    pattern = re.compile(rf"{whole}-\d+-of-\d+{re.escape(parts['suffix'])}")
    by_name = [name for name in names if pattern.fullmatch(name)]
    try:
        content = parse_json(read_text(folder / index))
        listed = [name for name in content["weight_map"].values() if isinstance(name, str)]
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        listed = []
    return list(dict.fromkeys([*by_name, *listed]))
