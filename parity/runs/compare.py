"""Two runs of one job at the same step: how far apart they are, and where most."""

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
from vit_config.recipe import ONLY_JAX

T = TypeVar("T")
JSON_VERSION = 1


@dataclass(frozen=True)
class Part:
    """A part of the state: the parameters, a moment or the average."""

    distance: float
    """||b - a|| / ||a||, over all that the loss sees."""
    tensors: int
    worst: str
    """The tensor that is farthest apart on its own scale."""
    worst_distance: float


@dataclass(frozen=True)
class Comparison:
    """How far apart two runs are."""

    folders: tuple[Path, Path]
    frameworks: tuple[Framework, Framework]
    step: int
    """Updates both have done."""
    parts: dict[str, Part]
    unseen: int
    """Numbers of the parameters that the loss cannot see."""
    unseen_difference: float
    """The largest difference that one of them has come to."""

    def beyond(self, limit: float) -> list[str]:
        """The parts that are farther apart."""
        return [name for name, part in self.parts.items() if not part.distance <= limit]


def compare_runs(a: Path, b: Path, step: int | None = None) -> Comparison:
    """Compare two run folders of either framework, in which nothing is changed.

    Args:
        step: which checkpoint; default: the newest step of which both have one.

    Raises:
        MissingFileError: no run, or no checkpoint of that step, or of any step in both.
        CheckpointError: runs of another model, recipe or data; or a checkpoint that is not whole.
        ConfigError: a schema or recipe that this version does not know.
    """
    folders = a, b
    _check_same(*folders)
    if step is None:
        step = _common_step(*folders)
    here, there = (read_run(folder, step) for folder in folders)
    sight = Sight(here.config)
    others = there.state.parts()
    parts = {}
    for name, arrays in here.state.parts().items():
        other = others[name]
        each = {tensor: distance(sight, {tensor: arrays[tensor]}, other) for tensor in arrays}
        worst = max(each, key=lambda tensor: each[tensor])
        parts[name] = Part(distance(sight, arrays, other), len(arrays), worst, each[worst])
    unseen = unseen_difference(sight, here.state, there.state)
    return Comparison(folders, _both(_framework, *folders), step, parts, sight.count, unseen)


def print_comparison(found: Comparison, limit: float | None, console: Console) -> None:
    """Print the distances, and the verdict where there is a limit."""
    names = [
        f"{escape(str(f))} ({NAMES[w]})" for f, w in zip(found.folders, found.frameworks, strict=True)
    ]
    console.print(f"{names[0]} against {names[1]}, after {found.step} updates", highlight=False)
    table = Table()
    table.add_column("part")
    table.add_column("tensors", justify="right")
    table.add_column("worst tensor", overflow="fold")
    table.add_column("its distance", justify="right")
    table.add_column("distance", justify="right")
    table.add_column("")
    beyond = [] if limit is None else found.beyond(limit)
    for name, part in found.parts.items():
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
    if found.unseen:
        lines.append(
            f"left out: {found.unseen} numbers that the loss cannot see, such as biases of keys; the"
            f" largest difference among them is {number(found.unseen_difference)}"
        )
    if limit is None:
        lines.append("how far rounding takes such runs apart: parity check-steps")
    elif beyond:
        lines.append(f"[bold red]DIFFERENT[/]: beyond {limit:g}: {', '.join(beyond)}")
    else:
        lines.append(f"[bold green]EQUAL[/] to {limit:g}")
    for line in lines:
        console.print(line, highlight=False)


def to_dict(found: Comparison, limit: float | None) -> dict[str, Any]:
    """The comparison as JSON values; a distance that is no number as null."""
    sides = zip(found.folders, found.frameworks, strict=True)
    return {
        "version": JSON_VERSION,
        **{name: {"folder": str(f), "framework": w} for name, (f, w) in zip("ab", sides, strict=True)},
        "step": found.step,
        "parts": {
            name: {
                "distance": _finite(part.distance),
                "tensors": part.tensors,
                "worst": part.worst,
                "worst_distance": _finite(part.worst_distance),
            }
            for name, part in found.parts.items()
        },
        "unseen": found.unseen,
        "unseen_difference": _finite(found.unseen_difference),
        "limit": limit,
        "passed": None if limit is None else not found.beyond(limit),
    }


def _check_same(a: Path, b: Path) -> None:
    """Refuse runs that were never meant to be the same.

    The attention kernel and the type that devices add gradients in may differ: they are the only fields
    of a recipe that a run may have to change when it moves.
    """

    def job(folder: Path) -> dict[str, Any]:
        _framework(folder)
        manifest = read_manifest(folder)
        what = read_job(folder, manifest)
        parts = {"model": json.loads(what.config.to_json()), "recipe": json.loads(what.recipe.to_json())}
        for field in ONLY_JAX:
            del parts["recipe"][field]
        further = {name: manifest[name] for name in ("data", "freeze", "lora") if name in manifest}
        return flatten({**parts, **further})

    ours, theirs = _both(job, a, b)
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
        " continue one of them with --stop-after"
    )


def _framework(folder: Path) -> Framework:
    found = framework_of(folder)
    if found is None:
        raise MissingFileError(f"{folder}: holds no training run; give the folder of one")
    return found


def _both(function: Callable[[Path], T], a: Path, b: Path) -> tuple[T, T]:
    return function(a), function(b)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps)) or "none"


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
