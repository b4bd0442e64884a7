"""Comparison of two runs of one job at the same step."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from parity.measure.invisible import Sight
from parity.measure.shown import number
from parity.measure.tables import show_table
from parity.runs.distance import distance, unseen_difference
from parity.runs.folder import NAMES, Framework, framework_of, read_manifest, read_run, saved_steps
from parity.runs.folder_manifest import read_job
from vit_config import CheckpointError, MissingFileError
from vit_config.job import flatten
from vit_config.waiting import Stage, nobody
from vit_train.folder.manifest import Manifest, names_alone_differ

T = TypeVar("T")
JSON_VERSION = 1


@dataclass(frozen=True)
class StateComparison:
    """The comparison of one part of the state: the parameters, a moment or the average."""

    distance: float
    """||b - a|| / ||a||, over all numbers that the loss depends on."""
    tensors: int
    worst: str
    """The tensor with the largest distance relative to its own norm."""
    worst_distance: float


@dataclass(frozen=True)
class RunComparison:
    """The comparison of two runs."""

    folders: tuple[Path, Path]
    frameworks: tuple[Framework, Framework]
    step: int
    """Number of updates that both have done."""
    parts: dict[str, StateComparison]
    unseen: int
    """Count of parameter values that the loss does not depend on."""
    unseen_difference: float
    """Largest difference among these values."""

    def beyond(self, limit: float) -> list[str]:
        """Return the names of parts whose distance exceeds the limit, or is not a number."""
        return [name for name, part in self.parts.items() if not part.distance <= limit]


def compare_runs(
    a: Path, b: Path, step: int | None = None, *, on_stage: Stage = nobody
) -> RunComparison:
    """Compare two run folders of either framework; the folders are not changed.

    Args:
        step: the step of the checkpoints; default: the newest that both have.
        on_stage: called with each stage as it begins.

    Raises:
        MissingFileError: there is no run, no checkpoint of the step, or no step that both have.
        CheckpointError: model, recipe or data differ, or a checkpoint is not whole.
        ConfigError: this version does not know the schema or the recipe.
    """
    folders = a, b
    _check_same(*folders)
    if step is None:
        step = _common_step(*folders)
    on_stage(f"reading {a}", 1, 2)
    here = read_run(a, step)
    on_stage(f"reading {b}", 1, 1)
    there = read_run(b, step)
    on_stage("comparing both", 1, 0)
    sight = Sight(here.config)
    others = there.state.parts()
    parts = {}
    for name, arrays in here.state.parts().items():
        other = others[name]
        each = {tensor: distance(sight, {tensor: arrays[tensor]}, other) for tensor in arrays}
        worst = max(each, key=lambda tensor: each[tensor])
        parts[name] = StateComparison(distance(sight, arrays, other), len(arrays), worst, each[worst])
    unseen = unseen_difference(sight, here.state, there.state)
    return RunComparison(folders, _both(_framework, *folders), step, parts, sight.count, unseen)


def print_comparison(compared: RunComparison, limit: float | None, console: Console) -> None:
    """Print the distances, and a verdict if there is a limit."""
    names = [
        f"{escape(str(f))} ({NAMES[w]})"
        for f, w in zip(compared.folders, compared.frameworks, strict=True)
    ]
    console.print(f"{names[0]} against {names[1]}, after {compared.step} updates", highlight=False)
    table = Table()
    table.add_column("part")
    table.add_column("tensors", justify="right")
    table.add_column("worst tensor", overflow="fold")
    table.add_column("its distance", justify="right")
    table.add_column("distance", justify="right")
    table.add_column("")
    beyond = [] if limit is None else compared.beyond(limit)
    for name, part in compared.parts.items():
        verdict = "[bold red]differs[/]" if name in beyond else "[green]ok[/]"
        table.add_row(
            name,
            str(part.tensors),
            part.worst if part.worst_distance else "-",
            number(part.worst_distance),
            number(part.distance),
            "" if limit is None else verdict,
        )
    show_table(table, console)
    lines = ["distance: norm of the difference over the norm of the first, over all that the loss sees"]
    if compared.unseen:
        lines.append(
            f"left out: {compared.unseen} numbers that the loss cannot see, such as biases of keys; the"
            f" largest difference among them is {number(compared.unseen_difference)}"
        )
    if limit is None:
        lines.append("how far rounding takes such runs apart: parity check-steps")
    elif beyond:
        lines.append(f"[bold red]DIFFERENT[/]: beyond {limit:g}: {', '.join(beyond)}")
    else:
        lines.append(f"[bold green]EQUAL[/] to {limit:g}")
    for line in lines:
        console.print(line, highlight=False)


def to_dict(compared: RunComparison, limit: float | None) -> dict[str, Any]:
    """Return the comparison as plain data; infinities stay."""
    sides = zip(compared.folders, compared.frameworks, strict=True)
    return {
        "version": JSON_VERSION,
        **{name: {"folder": str(f), "framework": w} for name, (f, w) in zip("ab", sides, strict=True)},
        "step": compared.step,
        "parts": {
            name: {
                "distance": part.distance,
                "tensors": part.tensors,
                "worst": part.worst,
                "worst_distance": part.worst_distance,
            }
            for name, part in compared.parts.items()
        },
        "unseen": compared.unseen,
        "unseen_difference": compared.unseen_difference,
        "limit": limit,
        "passed": None if limit is None else not compared.beyond(limit),
    }


def _check_same(a: Path, b: Path) -> None:
    """Refuse runs of different jobs.

    The attention kernel and the type in which devices sum gradients may differ: a run may have to change
    them when it moves to another framework, and they leave its function as it is.
    """

    def manifest_of(folder: Path) -> Manifest:
        _framework(folder)
        return read_manifest(folder)

    manifests = _both(manifest_of, a, b)
    renamed = names_alone_differ(*manifests)

    def job(folder: Path, manifest: Manifest) -> dict[str, Any]:
        what = read_job(folder, manifest)
        parts = {"model": json.loads(what.config.to_json()), "recipe": json.loads(what.recipe.to_json())}
        for field in ("kernel", "reduce_dtype"):
            del parts["recipe"][field]
        further = {name: manifest[name] for name in ("data", "freeze", "lora") if name in manifest}
        if "data" in renamed:
            further["data"] = {**further["data"], "name": ""}
        return flatten({**parts, **further})

    ours, theirs = (job(*each) for each in zip((a, b), manifests, strict=True))
    wrong = [
        f"{name} = {json.dumps(ours.get(name))} and {json.dumps(theirs.get(name))}"
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    ]
    if wrong:
        raise CheckpointError(
            f"{a} and {b}: are runs of different jobs: {'; '.join(wrong)}; only runs"
            " of the same job can be compared"
        )


def _common_step(a: Path, b: Path) -> int:
    ours, theirs = _both(saved_steps, a, b)
    if common := set(ours) & set(theirs):
        return max(common)
    raise MissingFileError(
        f"{a} has checkpoints of steps {_listed(ours)}, {b} of {_listed(theirs)}: none in common;"
        " continue one of them by `parity train --stop-after N`"
    )


def _framework(folder: Path) -> Framework:
    framework = framework_of(folder)
    if framework is None:
        raise MissingFileError(f"{folder}: holds no training run; give the folder of one")
    return framework


def _both(function: Callable[[Path], T], a: Path, b: Path) -> tuple[T, T]:
    return function(a), function(b)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps)) or "none"
