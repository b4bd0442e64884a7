"""Reader of Lightning's ``.ckpt`` files, and the loop counters for writing one.

The counters are those that ``lightning.pytorch.loops`` stores in a checkpoint at the end of an epoch.
"""

from __future__ import annotations

from typing import Any

from parity.porting.formats import Container
from parity.runs.foreign.entries import Entries
from parity.runs.foreign.records import StateRecords
from parity.runs.foreign.statements import Statements
from vit_config.errors import CheckpointError

VERSION = "pytorch-lightning_version"
WRITTEN_AS = "2.0.0"
"""Version whose layout is written; newer versions read it."""


def is_lightning(container: Container) -> bool:
    """Return whether a file is one of Lightning's checkpoints."""
    return VERSION in container.objects and "global_step" in container.objects


def read_lightning(container: Container) -> StateRecords:
    """Read the records of a Lightning file: the step, but no recipe.

    ``hyper_parameters`` have names of the user's own code.

    Raises:
        CheckpointError: the file has no optimiser, or several.
    """
    entries, stated = Entries.of(container), Statements()
    optimizers = entries.under("optimizer_states")
    count = len({name.partition(".")[0] for name, _ in optimizers.items()})
    if count != 1:
        raise CheckpointError(
            f"it holds {count} optimisers, and a recipe has one"
            + ("" if count else "; save without save_weights_only")
        )
    stated.say("the file, which holds no average", ema=None)
    notes = []
    if entries.under("hyper_parameters"):
        notes.append(
            "hyper_parameters have the names of the user's own code and are not read as a recipe"
        )
    if callbacks := sorted({name.partition(".")[0] for name, _ in entries.under("callbacks").items()}):
        notes.append(f"the states of {len(callbacks)} callbacks are not carried")
    if any("Precision" in name for name, _ in entries.items()):
        notes.append("the scale of the loss for half precision is not carried")
    return StateRecords(
        library="Lightning",
        optimizer=optimizers.under("0"),
        said=stated,
        step=entries.get("global_step"),
        notes=tuple(notes),
    )


def loops(step: int, epochs_done: int, steps_per_epoch: int) -> dict[str, Any]:
    """Return the progress of ``trainer.fit`` after `step` updates, as Lightning's loops store it.

    Args:
        step: number of updates done, one a batch.
        epochs_done: number of whole epochs done.
    """
    batch = step - epochs_done * steps_per_epoch or steps_per_epoch  # in the last epoch that was begun
    begun = epochs_done + (batch != steps_per_epoch)
    batches, last = _counts(step), _counts(batch)
    epochs = {**_counts(epochs_done), "ready": begun, "started": begun}
    optimizer = {
        "step": {"total": _few(step), "current": _few(batch)},
        "zero_grad": {
            "total": {**_few(step), "started": step}, "current": {**_few(batch), "started": batch}
        },
    }  # fmt: skip
    empty = {"total": _few(0), "current": _few(0)}
    return {
        "fit_loop": {
            "state_dict": {},
            "epoch_loop.state_dict": {"_batches_that_stepped": step},
            "epoch_loop.batch_progress": {
                "total": batches, "current": last, "is_last_batch": batch == steps_per_epoch,
            },
            "epoch_loop.scheduler_progress": {"total": _few(step), "current": _few(batch)},
            "epoch_loop.automatic_optimization.state_dict": {},
            "epoch_loop.automatic_optimization.optim_progress": {"optimizer": optimizer},
            "epoch_loop.manual_optimization.state_dict": {},
            "epoch_loop.manual_optimization.optim_step_progress": empty,
            "epoch_loop.val_loop.state_dict": {},
            "epoch_progress": {"total": epochs, "current": dict(epochs)},
        }
    }  # fmt: skip


def _counts(number: int) -> dict[str, int]:
    return dict.fromkeys(("ready", "completed", "started", "processed"), number)


def _few(number: int) -> dict[str, int]:
    return dict.fromkeys(("ready", "completed"), number)
