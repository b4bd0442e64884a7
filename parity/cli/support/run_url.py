"""Local copies of training runs on object storage, for the commands that read a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack

from vit_config import CheckpointError, MissingFileError

_URL = re.compile(r"[a-z0-9]+://")


def runs_here(words: Sequence[str]) -> list[str]:
    """Return a command line with the local folder in place of each run's URL.

    Raises:
        ConfigError: a package that the URL's scheme needs is not installed.
        CheckpointError: the storage cannot be read.
        MissingFileError: there is no run.
    """
    return [_folder(word) if _URL.match(word) else word for word in words]


def _folder(url: str) -> str:
    """Return the local folder, with all complete files copied to it, unless the run goes on in it."""
    from vit_train.folder.manifest import FILE, locked
    from vit_train.folder.mirror import make_mirror

    mirror = make_mirror(url)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(mirror.lock))
        except CheckpointError:
            return str(mirror.folder)
        mirror.fetch()
    if not (mirror.folder / FILE).is_file():
        raise MissingFileError(f"{url}: no {FILE} there; give the folder of a training run")
    return str(mirror.folder)
