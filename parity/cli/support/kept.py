"""Refusal to replace what is read, or by a report what belongs to a model or a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.cli.support.run_weights import is_run
from vit_config import ConfigError
from vit_config.files.atomic import check_spares, check_writable, resolved

if TYPE_CHECKING:
    from vit_config.job import Job

WRITTEN = (
    "json", "csv", "html", "repro", "svg", "plot", "features", "names",
)  # fmt: skip
"""Fields of commands that are reports: files to write beside what a command prints."""
NAMES = (
    "config.json", "*_config.json", "*.index.json", "*.index.*.json", "index.json", "task.json",
    "trainer_state.json", "tokenizer*", "vocab.*", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "*.toml",
    "run.json", "recipe.json", "log.jsonl", "about.json", "test_images.npz", "_*METADATA", "*.distcp",
)  # fmt: skip
"""Names of files beside weights, of recordings, runs and recipes, as shell patterns; weights and
programs are known by their suffixes."""


def refuse_lost(arguments: Any, written: tuple[str, ...] = WRITTEN) -> None:
    """Refuse a report that cannot be written, or whose path must not be replaced, before all work.

    A path must not be replaced if the command reads it (of FILE.py:FUNCTION, the file), or if there is a
    file of a model, a run or a recording, by its name. Reports of earlier calls may be replaced.

    Args:
        arguments: a command's dataclass.
        written: the fields that are reports.

    Raises:
        ConfigError: with the flag; or two reports are to be written to one file.
        MissingFileError: the report's folder does not exist.
    """
    every = list(_flat(arguments))
    reports = {n: path for n, path in every if n in written and isinstance(path, Path)}
    if not reports:
        return
    read = {resolved(path) for name, value in every if name not in written for path in _paths(value)}
    pictures = {resolved(path) for name, value in every if name == "images" for path in _paths(value)}
    seen: dict[Path, str] = {}
    for name, path in reports.items():
        check_writable(path)
        place = resolved(path)
        other = seen.setdefault(place, name)
        if other != name:
            raise ConfigError(f"--{other} and --{name} are both to be written to {path}")
        if not path.is_file():
            continue
        if place in read or _is_picture_in(place, pictures):
            raise ConfigError(f"--{name} {path}: is what is read; give another path")
        if is_kept(path):
            raise ConfigError(
                f"--{name} {path}: exists, with the name of a model's or a run's file; give another path"
            )


def is_kept(path: Path) -> bool:
    """Return whether a file is named as those of a model, a run or a recording are."""
    from parity.porting.formats.suffixes import NAMED, PROGRAMS

    return path.name.endswith((*NAMED, *PROGRAMS.values())) or is_named(path)


def is_named(path: Path) -> bool:
    """Return whether a file is named as those beside weights are."""
    from parity.porting.fleet.folders import COMPANIONS
    from parity.porting.formats.suffixes import PROGRAMS

    patterns = (*NAMES, *COMPANIONS, *(f"*{each}.json" for each in PROGRAMS.values()))
    return any(fnmatchcase(path.name, each) for each in patterns)


def refuse_replacing_inputs(out: Path, arguments: Any, source: str | Path) -> None:
    """Refuse an output that is one of the inputs, even with `--force`.

    Args:
        out: the path to write.
        arguments: the command's dataclass; its fields that are paths, but for `out`, are read.
        source: the checkpoint or the run that is read.

    Raises:
        ConfigError: see `check_spares`.
    """
    read, whole = [Path(source)], []
    for name, value in _flat(arguments):
        if isinstance(value, Path) and name not in ("out", "paths"):
            read.append(value)
        elif name == "data" and isinstance(value, str) and (place := value.partition(":")[2]):
            read.append(Path(place))
    for folder in filter(Path.is_dir, list(read)):
        read += [each for each in folder.iterdir() if is_named(each)]
        read += _weights_in(folder)
        if is_run(folder):
            from parity.runs.folder import CHECKPOINTS

            whole.append(folder / CHECKPOINTS)
    check_spares(out, read, whole)


def spare_start(run_dir: Path, job: Job) -> None:
    """Refuse a run's folder in which its weights would replace those that it starts or learns from.

    Raises:
        ConfigError: with the file or folder.
    """
    from parity.porting.models.trained import WEIGHTS

    for path in filter(None, (job.init, job.teacher)):
        if resolved(path) in (resolved(run_dir), resolved(run_dir / WEIGHTS)):
            raise ConfigError(
                f"--run-dir {run_dir}: {WEIGHTS} of this run would replace what is read, {path}; give"
                " another folder"
            )


def _weights_in(folder: Path) -> list[Path]:
    """Return the files with weights that are read of a folder, with all pieces of a model."""
    from parity.porting.formats.weights_folder import ADAPTER_WEIGHTS, OF_A_RUN, WEIGHTS

    names = (*WEIGHTS, OF_A_RUN[1], *ADAPTER_WEIGHTS)
    preferred = [folder / name for name in names if (folder / name).is_file()][:1]
    return [*preferred, *folder.glob("*-[0-9]*-of-[0-9]*.*")]


def _is_picture_in(place: Path, folders: Iterable[Path]) -> bool:
    """Return whether a file is one of the images that a command takes from folders."""
    from vit_train.sources.folder import PICTURES

    return place.suffix.lower() in PICTURES and any(map(place.is_relative_to, folders))


def _paths(value: Any) -> Iterator[str]:
    """Yield the paths that a value may mean: itself, FILE of FILE:FUNCTION and of table:FILE."""
    for word in value if isinstance(value, tuple) else (value,):
        if isinstance(word, str | Path):
            text = str(word)
            parts = (text, text.rpartition(":")[0], text.partition(":")[2])
            yield from (each for each in parts if each and "\0" not in each)


def _flat(arguments: Any) -> Iterator[tuple[str, Any]]:
    """Yield every field with its value, also those of inner groups; a schema has no files."""
    for name in getattr(arguments, "__dataclass_fields__", ()):
        value = getattr(arguments, name)
        if dataclasses.is_dataclass(value):
            yield from _flat(value)
        else:
            yield name, value
