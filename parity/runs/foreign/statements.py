"""A recipe's fields as several sources state them: optimiser groups, the library's records, the user."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from vit_config import Recipe
from vit_config.errors import CheckpointError, UnstatedError

GROUPS = "the optimiser's groups"
"""Name of a source: the hyperparameters that torch keeps beside the moments."""

NEEDED = (
    "epochs", "batch_size", "seed", "optimizer", "learning_rate", "weight_decay", "clip_norm", "loss",
    "label_smoothing", "ema", "schedule", "warmup_epochs", "dtype",
)  # fmt: skip
"""Fields that the next updates depend on, so that a source has to state them."""


class Statements:
    """Fields of a recipe, each with the source that states it.

    A second source with another value raises at once.
    """

    def __init__(self) -> None:
        self._said: dict[str, tuple[Any, str]] = {}

    def say(self, who: str, **fields: Any) -> None:
        """Add fields that `who` states.

        Raises:
            CheckpointError: another source states another value; the message has both.
        """
        for name, value in fields.items():
            before, first = self._said.setdefault(name, (value, who))
            if not same(before, value):
                raise CheckpointError(
                    f"{name} = {json.dumps(before)} ({first}), but {json.dumps(value)} ({who})"
                )

    def get(self, name: str, default: Any = None) -> Any:
        """Return the stated value of a field, or `default`."""
        return self._said.get(name, (default, ""))[0]

    def __contains__(self, name: str) -> bool:
        return name in self._said

    def recipe(self, given: Recipe | None, library: str) -> Recipe:
        """Build the recipe from all stated fields, and from the user's recipe for the others.

        Args:
            given: the user's recipe. Only the fields that it sets count; they must not contradict the
                file.
            library: the file's library, in words.

        Raises:
            CheckpointError: the user's recipe contradicts the file.
            UnstatedError: no source states a field that the next updates depend on.
        """
        fields = {} if given is None else {name: getattr(given, name) for name in given.model_fields_set}
        for name, value in fields.items():
            if name in self._said and not same(self._said[name][0], value):
                before, who = self._said[name]
                raise CheckpointError(
                    f"changed recipe: {name} = {json.dumps(before)} ({who}), but {json.dumps(value)}"
                    " (the recipe); leave it out or start a new run"
                )
        refuse_open([name for name in NEEDED if name not in fields and name not in self._said], library)
        return Recipe(**{**fields, **{name: value for name, (value, _) in self._said.items()}})


def refuse_open(names: Iterable[str], library: str) -> None:
    """Ask the user for fields that no source states.

    Raises:
        UnstatedError: there are such fields.
    """
    if missing := tuple(names):
        raise UnstatedError(
            f"{library} leaves open {', '.join(missing)}; give --recipe FILE that states them, as a"
            " change of recipe in mid-run must not go unnoticed"
        )


def same(one: Any, other: Any) -> bool:
    """Return whether two values mean the same; numbers may differ by round-off."""
    if isinstance(one, bool | None) or isinstance(other, bool | None):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
