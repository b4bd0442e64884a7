"""Which checkpoint of a run is read, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from parity.runs.state import moments_of
from vit_config import CheckpointError, MissingFileError, Recipe
from vit_config.errors import about

T = TypeVar("T")
SHOWN = 3
"""How many of the same kind an error lists."""


def choose(
    folder: Path,
    steps: list[int],
    step: int | None,
    restore: Callable[[int], T],
    damaged: type[Exception],
) -> tuple[T, list[str]]:
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
        except CheckpointError as error:
            raise CheckpointError(_brief(folder, each, str(error))) from None
        except damaged as error:
            if step is not None:
                raise CheckpointError(f"{folder}: step {each} is damaged: {error}") from None
            notes.append(f"the checkpoint of step {each} is damaged and was skipped: {error}")
    raise CheckpointError(f"{folder}: {'; '.join(notes)}; no older one is left")


def _brief(folder: Path, step: int, said: str) -> str:
    """Which checkpoint it is, and the first of many complaints."""
    parts = said.split("; ")
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return about(folder, f"{'; '.join(parts[:SHOWN])}{more}", part=f", step {step}")


def without_moments(
    folder: Path, recipe: Recipe, kept: Mapping[str, Collection[str]], step: int, cold: bool
) -> tuple[list[str], list[str]]:
    """The parameters that lack a moment, so that all their moments have to start from zero; and a note.

    Args:
        kept: which moments there are, for every parameter of the model.
        step: updates done.
        cold: that is what is wanted.

    Raises:
        CheckpointError: it is not.
    """
    lacking = [name for name, moments in kept.items() if not set(moments_of(recipe)) <= set(moments)]
    if not lacking or not step:  # before the first update there is nothing to lose
        return lacking, []
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    said = f"{folder}: no moments of {', '.join(lacking[:SHOWN])}{more}"
    if not cold:
        raise CheckpointError(
            f"{said}, so {recipe.optimizer} would start cold after {step} updates; give --cold to"
            " allow it"
        )
    return lacking, [f"{said}: cold, from zero, after {step} updates"]
