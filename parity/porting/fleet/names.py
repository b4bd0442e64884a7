"""Names of converted checkpoints, and removal of the temporary files of a killed run."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from parity.porting.dialects import find_dialects
from parity.porting.fleet.manifest import FleetJob
from parity.porting.formats.suffixes import INDEX, NAMED
from vit_config import ConfigError
from vit_config.files.places import shortened

LONGEST = 100
"""Maximum bytes of a name that is proposed, without suffix."""


def suffix_of(target: str) -> str:
    """Return the suffix of the files that a dialect is written to; empty if it is written to folders.

    Raises:
        ConfigError: there is no such dialect or family.
    """
    dialects = find_dialects(target)
    folders = any(dialect.settings is not None for dialect in dialects)
    return "" if folders else PurePosixPath(dialects[0].weights_name).suffix


def propose_name(path: str, root: Path) -> str:
    """Return a name in the folder of outputs: of ``runs/a/best.pth`` it is ``runs--a--best``."""
    *folders, last = PurePosixPath(path).parts or (root.resolve().name,)
    if index := INDEX.fullmatch(last):
        last = f"{index['stem']}{index['variant'] or ''}"
    for ending in sorted(NAMED, key=len, reverse=True):
        if last.endswith(ending) and last != ending:
            last = last.removesuffix(ending)
            break
    name = "--".join([*folders, last]).replace(".", "_")  # a dot would look like a file's suffix
    return name.encode()[-LONGEST:].decode(errors="ignore")


def number_repeated(names: Iterable[str]) -> list[str]:
    """Return names of which the second that is equal, but for case, ends in ``-2``, and so on."""
    taken: set[str] = set()
    result = []
    for name in names:
        number, free = 1, name
        while free.casefold() in taken:
            number += 1
            free = f"{name}-{number}"
        taken.add(free.casefold())
        result.append(free)
    return result


def output_names(jobs: Iterable[FleetJob], root: Path, suffix: str) -> dict[str, str]:
    """Return the name of each checkpoint's output: its `out`, or for a manifest without it the proposed
    one.

    Raises:
        ConfigError: two checkpoints would be written to one name.
    """
    names = {job.path: (job.out or propose_name(job.path, root)) + suffix for job in jobs}
    often = Counter(name.casefold() for name in names.values())
    if twice := [path for path, name in names.items() if often[name.casefold()] > 1]:
        raise ConfigError(
            f"{', '.join(twice)}: would be written to one name, {names[twice[0]]};"
            ' give each another "out" in the manifest'
        )
    return names


def sweep(folder: Path, names: Mapping[str, str]) -> int:
    """Remove the temporary files and folders of outputs that a killed run was writing.

    Their names are those of `atomic_file`: a dot, the output's name, eight characters. No other process
    may be writing in the folder.

    Returns:
        The number of removed files and folders.
    """
    both = (each for name in names.values() for each in (name, f"{name}.verification.json"))
    mine = set(map(shortened, both))
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
