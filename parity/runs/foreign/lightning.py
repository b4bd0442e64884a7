"""Reader of Lightning's ``.ckpt`` files, and the loop counters for writing one.

The counters are those that ``lightning.pytorch.loops`` stores in a checkpoint at the end of an epoch.
"""

from __future__ import annotations

from parity.porting.formats import Container
from parity.runs.foreign.entries import Entries
from parity.runs.foreign.records import StateRecords
from parity.runs.foreign.statements import Statements
from vit_config.errors import CheckpointError

VERSION = "pytorch-lightning_version"


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
