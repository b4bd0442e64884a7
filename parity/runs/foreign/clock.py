"""Progress of a run: updates, epochs, and the learning rate at this point of the schedule."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.runs.foreign.optimizer import OptimizerState
from parity.runs.foreign.records import StateRecords
from parity.runs.foreign.statements import GROUPS
from vit_config import Recipe
from vit_config.errors import CheckpointError, UnstatedError
from vit_config.schedule import learning_rate


def step_of(optimizer: OptimizerState, names: Mapping[int, str], stated: int | None) -> int | None:
    """Return the number of updates done, by the optimiser's counts or the records; None if unknown.

    Args:
        stated: the number in the library's own records.

    Raises:
        CheckpointError: two counts disagree; the message has both.
    """
    counts = {names[index]: each["step"] for index, each in optimizer.state.items() if "step" in each}
    first = next(iter(counts), None)
    for name, count in counts.items():
        if count != counts[first or name]:
            raise CheckpointError(
                f"{name} has had {count:g} updates but {first} {counts[first or name]:g}; parameters"
                " that were not trained all along cannot be carried"
            )
    if first is None:
        return stated
    if stated is not None and stated != counts[first]:
        raise CheckpointError(
            f"the optimiser has done {counts[first]:g} updates, but the file's records say {stated}"
        )
    return int(counts[first])


def count_updates(records: StateRecords, steps_per_epoch: int | None) -> int:
    """Compute the number of updates done from epochs, for optimisers that do not count updates.

    Raises:
        UnstatedError: the number or the length of epochs is unknown.
    """
    if steps_per_epoch is None or records.epochs_done is None:
        raise UnstatedError(
            f"the step is unknown: this optimiser counts none, and {records.library} only epochs;"
            " give --steps-per-epoch N"
        )
    return steps_per_epoch * records.epochs_done


def steps_an_epoch(records: StateRecords, step: int, stated: int | None) -> int | None:
    """Return the number of updates in an epoch, by the file or else by the user; None if unknown.

    Raises:
        CheckpointError: file and user disagree, or epochs and updates do not fit.
    """
    recorded, epochs = records.steps_per_epoch, records.epochs_done
    if recorded is None and epochs and step % epochs == 0:
        recorded = step // epochs
    if stated is None:
        return recorded
    if recorded not in (None, stated) or (epochs is not None and epochs * stated != step):
        done = "" if epochs is None else f" in {epochs} epochs"
        raise CheckpointError(
            f"steps_per_epoch = {stated} does not fit the file, which has {step} updates{done}"
            + (f", {recorded} an epoch" if recorded else "")
        )
    return stated


def check_learning_rate(
    optimizer: OptimizerState, recipe: Recipe, step: int, steps_per_epoch: int | None
) -> str:
    """Compare the learning rate of the optimiser's groups with the recipe's schedule.

    A scheduler steps before or after a checkpoint is written, so the rate may be that of the last update
    or of the next.

    Returns:
        A note if nothing can be compared, else an empty string.

    Raises:
        CheckpointError: the rates differ from the recipe's schedule; the message has them.
    """
    if steps_per_epoch is None:
        return (
            "how many steps an epoch has is unknown, so the schedule could not be compared with the"
            " learning rate in the file"
        )
    rate = float(optimizer.groups[0].options["lr"])
    expected = [float(learning_rate(recipe, each, steps_per_epoch)) for each in (max(step - 1, 0), step)]
    if not np.isclose(rate, expected, rtol=1e-6, atol=1e-6 * recipe.learning_rate).any():
        raise CheckpointError(
            f"changed recipe: after {step} updates of {steps_per_epoch} an epoch the learning rate is"
            f" {rate:.6g} in {GROUPS} but {expected[0]:.6g}, then {expected[1]:.6g}, by the recipe's"
            f" schedule {recipe.schedule}"
        )
    return ""
