"""Choice of the checkpoint to read, and checks for missing moments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from parity.runs.state import moments_of
from vit_config import CheckpointError, MissingFileError, Recipe
from vit_config.errors import about

T = TypeVar("T")
SHOWN = 3
"""Most items that an error lists."""


def choose(
    folder: Path,
    steps: list[int],
    step: int | None,
    restore: Callable[[int], T],
    damaged: type[Exception],
) -> tuple[T, list[str]]:
    """Restore the state of a step, or the newest that is whole, with notes on damaged newer ones.

    Args:
        steps: the steps that have checkpoints.
        restore: returns the state of a step, or raises `damaged`.

    Raises:
        MissingFileError: there is no checkpoint of the step.
        CheckpointError: the checkpoint is damaged, or all are.
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


def _brief(folder: Path, step: int, message: str) -> str:
    """Shorten an error to its first complaints, and name the checkpoint."""
    parts = message.split("; ")
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return about(folder, f"{'; '.join(parts[:SHOWN])}{more}", part=f", step {step}")


def without_moments(
    folder: Path, recipe: Recipe, saved: Mapping[str, Collection[str]], step: int, cold: bool
) -> tuple[list[str], list[str]]:
    """Return the parameters that lack a moment, and a note: all their moments start from zero.

    Args:
        saved: names of the moments of every parameter.
        step: number of updates done.
        cold: allow missing moments.

    Raises:
        CheckpointError: moments are missing and `cold` is not set.
    """
    lacking = [name for name, moments in saved.items() if not set(moments_of(recipe)) <= set(moments)]
    if not lacking or not step:  # before the first update there is nothing to lose
        return lacking, []
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    message = f"{folder}: no moments of {', '.join(lacking[:SHOWN])}{more}"
    if not cold:
        raise CheckpointError(
            f"{message}, so {recipe.optimizer} would start cold after {step} updates; give --cold to"
            " allow it"
        )
    return lacking, [f"{message}: cold, from zero, after {step} updates"]
