"""What converted checkpoints are called, and what a killed run leaves behind."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from parity.porting.dialects import called
from parity.porting.fleet.folders import INDICES, SUFFIXES

LONGEST = 100
"""Characters of a name, without its suffix."""


def suffix_of(target: str) -> str:
    """The suffix of the files that a dialect is written to; empty if it is written to folders.

    Raises:
        ConfigError: there is no such dialect or family.
    """
    dialects = called(target)
    folders = any(dialect.settings is not None for dialect in dialects)
    return "" if folders else PurePosixPath(dialects[0].weights_name).suffix


def output_names(paths: Iterable[str], root: Path, suffix: str) -> dict[str, str]:
    """A name for each checkpoint, all side by side: ``runs/a/best.pth`` becomes ``runs--a--best``.

    Where two would get the same one, or it would be too long, it ends in a digest of the path. A name
    depends on the paths alone.
    """
    plain = {path: _flat(path, root, dots=bool(suffix)) for path in paths}
    often = Counter(name.casefold() for name in plain.values())
    names = {}
    for path, name in plain.items():
        if often[name.casefold()] > 1 or len(name.encode()) > LONGEST:
            digest = hashlib.sha256(path.encode()).hexdigest()[:8]
            name = f"{name.encode()[:LONGEST].decode(errors='ignore')}-{digest}"
        names[path] = name + suffix
    return names


def _flat(path: str, root: Path, *, dots: bool) -> str:
    parts = PurePosixPath(path).parts or (root.resolve().name,)
    *folders, last = parts
    for ending in sorted((*INDICES, *SUFFIXES), key=len, reverse=True):
        if last.endswith(ending) and last != ending:
            last = last.removesuffix(ending)
            break
    name = "--".join([*folders, last])
    return name if dots else name.replace(".", "_")  # with a suffix it would be taken for a file


def sweep(folder: Path, names: Mapping[str, str]) -> int:
    """Remove the temporary files and folders in which outputs were being written when a run was killed.

    They are those of `atomic_file`: a dot, the output's name, eight characters. Nobody else may
    be writing in the folder.

    Returns:
        How many there were.
    """
    mine = {each for name in names.values() for each in (name, f"{name}.verification.json")}
    swept = 0
    for path in folder.iterdir():
        match = re.fullmatch(r"\.(.+?)(\.old)?\.[a-z0-9_]{8}", path.name)
        if match is None or match[1] not in mine:
            continue
        swept += 1
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return swept
