"""The error message of a checkpoint that could not be written."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from vit_config import CheckpointError
from vit_train.folder.manifest import FILE
from vit_train.folder.mirror import CHECKPOINTS

UNFINISHED = ".orbax-checkpoint-tmp"
"""Part of the name of a folder that Orbax is writing a checkpoint into."""


def unwritten(folder: Path, reason: str) -> CheckpointError:
    """Make the error of a checkpoint that the disk refused, with the free space and the intact
    checkpoints; or of a run's folder that is gone, in whose place there may be the beginning of a
    checkpoint.

    Args:
        folder: folder of the checkpoints.
        reason: the refusal; a full disk is not always called so.
    """
    left = list(folder.iterdir()) if folder.is_dir() else []
    is_unfinished = all(UNFINISHED in each.name for each in left)
    if folder.name == CHECKPOINTS and is_unfinished and not (folder.parent / FILE).is_file():
        for each in left:
            shutil.rmtree(each, ignore_errors=True)
        for each in (folder, folder.parent):
            with suppress(OSError):  # it is not empty, or not there
                each.rmdir()
        return CheckpointError(
            f"{folder.parent}: the run's folder was deleted or moved while it ran, and its checkpoints"
            " with it; put it back and give the same command, or start again"
        )
    try:
        room = f"{shutil.disk_usage(folder).free / 1e9:.1f} GB are free there"
    except OSError:
        room = "the folder is gone"
    there = [each for each in left if UNFINISHED not in each.name and not each.name.startswith(".")]
    todo = "make room, or the folder writable, and"
    then = (
        f"The checkpoints before it are whole: {todo} the same command goes on from them"
        if there
        else f"There is none before it: {todo} give the same command again"
    )
    return CheckpointError(f"{folder}: the last checkpoint cannot be written ({reason}); {room}. {then}")
