"""What is said of a checkpoint that could not be written."""

from __future__ import annotations

import shutil
from pathlib import Path

from vit_config import CheckpointError


def unwritten(folder: Path, reason: str) -> CheckpointError:
    """The error of a checkpoint that the disk refused, with what room there is and what is left.

    Args:
        folder: that of the checkpoints.
        reason: what was refused; a disk that is full is not always called so.
    """
    try:
        room = f"{shutil.disk_usage(folder).free / 1e9:.1f} GB are free there"
    except OSError:
        room = "the folder is gone"
    return CheckpointError(
        f"{folder}: the last checkpoint cannot be written ({reason}); {room}. The checkpoints before it"
        " are whole: make room, and the same command goes on from them"
    )
