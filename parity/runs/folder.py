"""The run folders of both trainers, read and written: one state, exactly, in either form."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from parity.runs.run import Run
from parity.runs.state import TrainingState
from vit_config import CheckpointError, MissingFileError, Recipe, ViTConfig
from vit_config.atomic import atomic_folder, write_atomically
from vit_jax.train.conduct import CHECKPOINTS, NAMES, Framework
from vit_jax.train.log import read_log
from vit_jax.train.manifest import FILE as MANIFEST
from vit_jax.train.manifest import Manifest

LOG = "log.jsonl"

__all__ = ["CHECKPOINTS", "NAMES", "Framework", "framework_of", "read_manifest", "read_run", "write_run"]


def framework_of(folder: Path) -> Framework | None:
    """Whose run a folder holds; None where it is none of the two trainers'."""
    if not (folder / MANIFEST).is_file():
        return None
    saved = folder / CHECKPOINTS
    return "torch" if any(path.stem.isdecimal() for path in saved.glob("*.pt")) else "jax"


def read_run(folder: Path, step: int | None = None, *, cold: bool = False) -> Run:
    """The run in a folder.

    Args:
        step: which checkpoint; default: the newest that is whole.
        cold: let parameters without moments start with zeros.

    Raises:
        MissingFileError: no run there, or no checkpoint of that step.
        CheckpointError: damaged, of another run, architecture or optimiser; or moments are missing.
        ConfigError: a schema or recipe that this version does not know.
    """
    framework = framework_of(folder)
    if framework is None:
        raise MissingFileError(f"{folder}: no {MANIFEST} in it; give the folder of a training run")
    manifest = read_manifest(folder)
    cfg = ViTConfig.from_json(json.dumps(manifest["model"]), where=f"{folder / MANIFEST}, model")
    recipe = Recipe.from_json(json.dumps(manifest["recipe"]), where=f"{folder / MANIFEST}, recipe")
    state, notes = _room(framework).read(folder, cfg, recipe, manifest, step, cold)
    data = manifest["data"]
    return Run(cfg, recipe, state, None, data["name"], data["fingerprint"], tuple(notes))


def read_manifest(folder: Path) -> Manifest:
    """What a run consists of, as its folder says.

    Raises:
        CheckpointError: it says nothing that can be read.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        if not {"model", "recipe", "data", "versions"} <= manifest.keys():
            raise ValueError("not the description of a run")
    except (ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: is damaged ({error}); copy it from where the run began"
        ) from None
    return Manifest(manifest)


def write_run(
    run: Run,
    out: Path,
    framework: Framework,
    manifest: Manifest,
    *,
    log: Path | None = None,
    force: bool = False,
) -> None:
    """Write a run folder that a trainer goes on from, whole or not at all; it is read again and
    compared.

    Args:
        manifest: the description of the run.
        log: the folder whose log is continued.
        force: replace a folder that exists.

    Raises:
        CheckpointError: the parameters are not of the type that the recipe trains in.
        ConfigError: `out` exists.
        MissingFileError: the folder to write in does not exist.
    """
    held = "float64" if run.recipe.dtype == "float64" else "float32"
    found = {value.dtype.name for value in run.state.params.values()}
    if found != {held}:
        raise CheckpointError(
            f'the parameters are {" and ".join(sorted(found))}, but dtype = "{run.recipe.dtype}" trains'
            f" {held} ones; choose the recipe's dtype to fit"
        )
    with atomic_folder(out, force=force) as folder:
        write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        _room(framework).write(folder, run, manifest)
        if log is not None and (log / LOG).is_file():
            _copy_log(log, folder, run.state.step)
        again = read_run(folder, run.state.step)
        if wrong := differing(run.state, again.state):
            raise CheckpointError(f"{out}: not written as it was read: {', '.join(wrong[:3])}")


def _room(framework: Framework) -> Any:
    """The room that reads and writes a framework's checkpoints."""
    return import_module(f"parity.runs.folder_{framework}")


def differing(a: TrainingState, b: TrainingState) -> list[str]:
    """What is not bit for bit the same in two states, as ``part name``."""
    ours, theirs = a.parts(), b.parts()
    wrong = [f"step {a.step} and {b.step}"] if a.step != b.step else []
    for part in dict.fromkeys([*ours, *theirs]):
        here, there = ours.get(part, {}), theirs.get(part, {})
        wrong += [
            f"{part} {name}"
            for name in dict.fromkeys([*here, *there])
            if name not in here or name not in there or not _same(here[name], there[name])
        ]
    return wrong


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _copy_log(source: Path, folder: Path, step: int) -> None:
    """The log up to a step; what was tested at the end of another run is not of this one."""
    kept = [each for each in read_log(source) if each["step"] <= step and each["kind"] != "test"]
    write_atomically(folder / LOG, "".join(json.dumps(each) + "\n" for each in kept).encode())


def choose(
    folder: Path,
    steps: list[int],
    step: int | None,
    restore: Callable[[int], Any],
    damaged: type[Exception],
) -> tuple[Any, list[str]]:
    """The state of a step, or of the newest that is whole, and which newer ones are not.

    Args:
        steps: those of which there are checkpoints.
        restore: gives the state of one, or raises `damaged`.

    Raises:
        MissingFileError: there is none of that step.
        CheckpointError: it is damaged, or all are.
    """
    if step is not None and step not in steps:
        raise MissingFileError(
            f"{folder}: no checkpoint of step {step}; there are {', '.join(map(str, steps)) or 'none'}"
        )
    notes: list[str] = []
    for each in [step] if step is not None else steps[::-1]:
        try:
            return restore(each), notes
        except damaged as error:
            if step is not None:
                raise CheckpointError(f"{folder}: step {each} is damaged: {error}") from None
            notes.append(f"the checkpoint of step {each} is damaged and was skipped: {error}")
    raise CheckpointError(f"{folder}: {'; '.join(notes) or 'has no checkpoint'}")
