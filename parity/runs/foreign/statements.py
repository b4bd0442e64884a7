"""Who says what of a recipe: the optimiser's groups, the library's records, and the user."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from vit_config import Recipe
from vit_config.errors import CheckpointError, UnstatedError

GROUPS = "the optimiser's groups"
"""Who says what torch keeps beside the moments."""

NEEDED = (
    "epochs", "batch_size", "seed", "optimizer", "learning_rate", "weight_decay", "clip_norm", "loss",
    "label_smoothing", "ema", "schedule", "warmup_epochs", "dtype",
)  # fmt: skip
"""Fields that decide what the next updates do, so that somebody has to state them."""


class Statements:
    """Fields of a recipe, each with who states it.

    Two who state different values are contradicted at once.
    """

    def __init__(self) -> None:
        self._said: dict[str, tuple[Any, str]] = {}

    def say(self, who: str, **fields: Any) -> None:
        """State fields.

        Raises:
            CheckpointError: somebody else states another value; both are named.
        """
        for name, value in fields.items():
            before, first = self._said.setdefault(name, (value, who))
            if not same(before, value):
                raise CheckpointError(
                    f"{name} = {json.dumps(before)} ({first}), but {json.dumps(value)} ({who})"
                )

    def get(self, name: str, default: Any = None) -> Any:
        """What is stated of a field, or `default`."""
        return self._said.get(name, (default, ""))[0]

    def __contains__(self, name: str) -> bool:
        return name in self._said

    def recipe(self, asked: Recipe | None, library: str) -> Recipe:
        """All that is stated, and of the rest what the user says.

        Args:
            asked: the user's recipe. What it sets must not contradict the file; what it does not set, it
                does not state.
            library: whose file it is.

        Raises:
            CheckpointError: the user's recipe is another than that of the file.
            UnstatedError: nobody states a field that the next updates depend on.
        """
        told = {} if asked is None else {name: getattr(asked, name) for name in asked.model_fields_set}
        for name, value in told.items():
            if name in self._said and not same(self._said[name][0], value):
                before, who = self._said[name]
                raise CheckpointError(
                    f"changed recipe: {name} = {json.dumps(before)} ({who}), but {json.dumps(value)}"
                    " (the recipe); leave it out or start a new run"
                )
        refuse_open([name for name in NEEDED if name not in told and name not in self._said], library)
        return Recipe(**{**told, **{name: value for name, (value, _) in self._said.items()}})


def refuse_open(names: Iterable[str], library: str) -> None:
    """Ask for what nobody states.

    Raises:
        UnstatedError: there are such fields.
    """
    if missing := tuple(names):
        raise UnstatedError(
            f"{library} leaves open {', '.join(missing)}; give a recipe that states them, as a change"
            " of recipe in mid-run must not go unnoticed"
        )


def same(one: Any, other: Any) -> bool:
    """Whether two values mean the same: numbers may differ by rounding."""
    if isinstance(one, bool | None) or isinstance(other, bool | None):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
