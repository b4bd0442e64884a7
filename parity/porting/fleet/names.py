"""Names of converted checkpoints, and removal of the temporary files of a killed run."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from parity.porting.dialects import called
from parity.porting.formats.suffixes import INDEX, NAMED

LONGEST = 100
"""Maximum bytes of a name, without digest and suffix."""


def suffix_of(target: str) -> str:
    """Return the suffix of the files that a dialect is written to; empty if it is written to folders.

    Raises:
        ConfigError: there is no such dialect or family.
    """
    dialects = called(target)
    folders = any(dialect.settings is not None for dialect in dialects)
    return "" if folders else PurePosixPath(dialects[0].weights_name).suffix


def output_names(paths: Iterable[str], root: Path, suffix: str) -> dict[str, str]:
    """Return a name in one folder for each checkpoint: ``runs/a/best.pth`` becomes ``runs--a--best``.

    If two names would be equal, or one too long, a digest of the path is appended. Names depend only on
    the paths.
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
    if index := INDEX.fullmatch(last):
        last = f"{index['stem']}{index['variant'] or ''}{index['suffix']}"
    for ending in sorted(NAMED, key=len, reverse=True):
        if last.endswith(ending) and last != ending:
            last = last.removesuffix(ending)
            break
    name = "--".join([*folders, last])
    return name if dots else name.replace(".", "_")  # a dot would look like a file's suffix


def sweep(folder: Path, names: Mapping[str, str]) -> int:
    """Remove the temporary files and folders of outputs that a killed run was writing.

    Their names are those of `atomic_file`: a dot, the output's name, eight characters. No other process
    may be writing in the folder.

    Returns:
        The number of removed files and folders.
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
