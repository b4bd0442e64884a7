"""Reads and writes the run folders of both trainers, with exactly the same state in either form."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from parity.measure.error import same_bits
from parity.runs.folder_manifest import move, read_job, read_manifest
from parity.runs.run import Run
from parity.runs.state import TrainingState
from vit_config import CheckpointError, ConfigError, MissingFileError
from vit_config.files.atomic import atomic_folder, check_spares, write_atomically
from vit_config.job import Job
from vit_train.conduct import CHECKPOINTS
from vit_train.folder.about import RunAbout
from vit_train.folder.best import best_so_far
from vit_train.folder.log import FILE as LOG
from vit_train.folder.log import read_log
from vit_train.folder.manifest import FILE as MANIFEST
from vit_train.folder.manifest import Manifest, locked
from vit_train.frameworks import NAMES, Framework

__all__ = [
    "CHECKPOINTS",
    "MANIFEST",
    "NAMES",
    "Framework",
    "framework_of",
    "read_manifest",
    "read_run",
    "saved_steps",
    "write_run",
]


def framework_of(folder: Path) -> Framework | None:
    """Return the framework of the run in a folder; None if the folder is no run of the two trainers.

    Raises:
        CheckpointError: the folder has checkpoints of both.
    """
    if not (folder / MANIFEST).is_file():
        return None
    steps_of = {framework: _saved(folder, framework) for framework in NAMES}
    if all(steps_of.values()):
        raise CheckpointError(
            f"{folder}: has checkpoints of both frameworks, of steps"
            f" {' and '.join(str(steps[-1]) for steps in steps_of.values())};"
            " move one framework's checkpoints away"
        )
    return "torch" if steps_of["torch"] else "jax"


def saved_steps(folder: Path) -> list[int]:
    """Return the steps of a run folder's checkpoints, whole or not, in order."""
    return _saved(folder, framework_of(folder) or "jax")


def _saved(folder: Path, framework: str) -> list[int]:
    entries = (folder / CHECKPOINTS).glob("*.pt" if framework == "torch" else "*")
    names = [path.stem if framework == "torch" else path.name for path in entries]
    return sorted(int(name) for name in names if name.isdecimal())


def read_run(folder: Path, step: int | None = None, *, cold: bool = False) -> Run:
    """Read the run in a folder; the folder is not changed.

    Args:
        step: the step of the checkpoint; default: the newest that is whole.
        cold: allow missing moments, which start at zero.

    Raises:
        MissingFileError: there is no run, or no checkpoint of the step.
        CheckpointError: the checkpoint is damaged, of another run, architecture or optimiser, or lacks
            moments.
        ConfigError: this version does not know the schema or the recipe.
    """
    framework = framework_of(folder)
    if framework is None:
        raise MissingFileError(f"{folder}: no {MANIFEST} in it; give the folder of a training run")
    manifest = read_manifest(folder)
    what = read_job(folder, manifest)
    if not saved_steps(folder):
        raise MissingFileError(
            f"{folder}: has no checkpoint; train there first, or `parity train --stop-after 0` for the"
            " initial state"
        )
    state, notes = _module(framework).read(folder, what, manifest, step, cold)
    data = manifest["data"]
    return Run(
        what.config,
        what.recipe,
        state,
        None,
        data["name"],
        data["fingerprint"],
        tuple(notes),
        what.lora,
        what.frozen,
    )


def write_run(
    run: Run,
    out: Path,
    framework: Framework,
    manifest: Manifest,
    *,
    log: Path | None = None,
    force: bool = False,
) -> list[str]:
    """Write a run folder that a trainer can resume from, whole or not at all.

    The folder is read again and compared with `run`.

    Args:
        manifest: the description of the run.
        log: the folder of the run that is moved, whose log is continued; None for another library's.
        force: replace an existing run folder.

    Returns:
        Notes on everything that differs from the original run.

    Raises:
        CheckpointError: the parameters are not of the type that the recipe trains in, a process is
            training in `out`, or the folder does not read back the same.
        ConfigError: `out` exists, is no run folder, or contains the source run.
        MissingFileError: the folder to write in does not exist.
    """
    check_out(out, log, force=force)
    dtype = "float64" if run.recipe.dtype == "float64" else "float32"
    types = {value.dtype.name for value in run.state.params.values()}
    if types != {dtype}:
        raise CheckpointError(
            f'the parameters are {" and ".join(sorted(types))}, but dtype = "{run.recipe.dtype}" trains'
            f" {dtype} ones; give the recipe the dtype of the parameters"
        )
    written_by = _module(framework)
    source = None if log is None else framework_of(log)
    earlier = [] if log is None else _best_before(run, manifest, log)
    run, manifest, notes = move(run, manifest, framework, source)
    lock = locked(out) if out.is_dir() else nullcontext()
    with lock, atomic_folder(out, force=force) as folder:
        write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        for each in (*(replace(before, recipe=run.recipe) for before in earlier), run):
            written_by.write(folder, each, manifest)
        if log is not None and (log / LOG).is_file():
            _copy_log(log, folder, run.state.step)
        if log is not None and (about := RunAbout.load(log)) is not None:
            about.save(folder)
        again = read_run(folder, run.state.step)
        if wrong := differing(run.state, again.state):
            raise CheckpointError(f"{out}: not written as it was read: {', '.join(wrong[:3])}")
    return notes


def check_out(out: Path, source: Path | None, *, force: bool) -> None:
    """Refuse a path that a run folder must not be written to.

    Args:
        source: the source run's folder.

    Raises:
        ConfigError: `out` exists, and `force` is not set, it is no run folder or it contains `source`.
    """
    if not out.exists():
        return
    if not force:
        raise ConfigError(f"{out}: already exists; give another path, or --force")
    if source is not None:
        check_spares(out, [source])
    if out.is_dir() and any(out.iterdir()) and framework_of(out) is None:
        raise ConfigError(f"{out}: is not a run, and --force replaces only runs; give another path")


def _module(framework: Framework) -> Any:
    """Import the module that reads and writes a framework's checkpoints."""
    return import_module(f"parity.runs.folder_{framework}")


def differing(a: TrainingState, b: TrainingState) -> list[str]:
    """Return the tensors that are not bit for bit equal in two states, each as ``part name``."""
    ours, theirs = a.parts(), b.parts()
    wrong = [f"step {a.step} and {b.step}"] if a.step != b.step else []
    for part in dict.fromkeys([*ours, *theirs]):
        here, there = ours.get(part, {}), theirs.get(part, {})
        wrong += [
            f"{part} {name}"
            for name in dict.fromkeys([*here, *there])
            if name not in here or name not in there or not same_bits(here[name], there[name])
        ]
    return wrong


def _best_before(run: Run, manifest: Manifest, source: Path) -> list[Run]:
    """Read the run at its best evaluation so far, if it keeps the best and that is an earlier step."""
    chosen = {name: manifest[name] for name in ("best", "patience") if name in manifest}
    if not chosen:
        return []
    events = [event for event in read_log(source) if event["step"] <= run.state.step]
    best = best_so_far(Job(run.config, run.recipe, manifest["data"]["name"], **chosen), events)
    if best is None or best.step is None or best.step == run.state.step:
        return []
    return [read_run(source, best.step)]


def _copy_log(source: Path, folder: Path, step: int) -> None:
    """Copy the log up to a step, without the test result of a run that has ended."""
    events = [each for each in read_log(source) if each["step"] <= step and each["kind"] != "test"]
    write_atomically(folder / LOG, "".join(json.dumps(each) + "\n" for each in events).encode())
